"""`airlock mock` and `airlock synthesize`: what they write, and what is refused."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from airlock.commands import mock
from airlock.errors import BoundaryError, InputError, ReleaseError, SchemaError
from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.owner import add
from airlock.params import Params
from airlock.privacy.plan import Facts
from airlock.records.encoding import described_columns, encode, encoded_shape
from airlock.records.generation import mark_of
from airlock.records.schema_file import load_schema
from airlock.records.tables import open_table
from airlock.storage import save_tensors
from stages.open import synthesize
from stages.release.mechanisms import inputs
from tests.conformance.suite import Reader
from tests.support.clinic import Clinic, make_clinic, records


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clinic:
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    made = make_clinic(tmp_path)
    monkeypatch.chdir(made.root)
    return made


def test_mock_records_are_marked_everywhere_and_refused_by_add(clinic: Clinic, tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    app.command()(mock.command)
    made = CliRunner().invoke(app, ["clinic", "--rows", "30", "--output", str(tmp_path / "mock")])
    assert made.exit_code == 0, made.output
    files = sorted((tmp_path / "mock").iterdir())
    assert [path.name for path in files] == ["clinic.mock.csv", "clinic.mock.json", "clinic.mock.parquet"]
    assert json.loads(files[1].read_text())["kind"] == "mock"
    assert (mark_of(files[2]) or {})["kind"] == "mock"
    schema = load_schema(Path("data/schemas/clinic.yaml"))
    for file in (files[0], files[2]):
        table = open_table(file)
        assert "airlock_mock" in table.columns
        encode(next(iter(table.batches([*schema.sources, "outcome"]))), schema)
        with pytest.raises(InputError, match="holds mock records"):
            add.add(clinic.home, clinic.root, file, name="clinic")


@pytest.mark.parametrize("link", ["data/open", "data/open/mock", "data/open/mock/clinic.mock.csv"])
def test_mock_records_are_not_written_through_a_link(clinic: Clinic, tmp_path: Path, link: str) -> None:
    """A commit with such a link had the owner write over any file, with column names of its choice."""
    target = tmp_path / "owners"
    target.mkdir() if not link.endswith("csv") else target.write_text("mine")
    (clinic.root / link).parent.mkdir(parents=True, exist_ok=True)
    (clinic.root / link).symlink_to(target)
    with contextlib.suppress(BoundaryError):
        mock.command("clinic", rows=3, seed=0, output=None)
    assert target.read_text() == "mine" if link.endswith("csv") else not list(target.iterdir())
    assert (clinic.root / link).is_symlink() != link.endswith("csv"), (
        "a file is replaced, a folder is refused"
    )


def test_a_mock_of_an_unknown_schema_is_refused(clinic: Clinic) -> None:
    with pytest.raises(SchemaError, match="no schema"):
        mock.command("nobody", rows=3, seed=0, output=None)


def room_of(clinic: Clinic, folder: Path, **synth: object) -> Room:
    params = Params.model_validate({"dataset": "clinic", "synthesize": synth})
    schema = "data/schemas/clinic.yaml"
    return Room(
        "synthesize",
        params,
        paths={
            schema: clinic.root / schema,
            synthesize.RELEASE: folder / "release",
            synthesize.OUT: folder / "out",
        },
    )


def release(clinic: Clinic, folder: Path, mechanism: str = "inputs") -> None:
    """A release of the clinic's records, as the stage finds it."""
    schema = load_schema(clinic.root / "data/schemas/clinic.yaml")
    encoded = encode(records(400), schema)
    facts = Facts(
        "clinic", False, "tabular", 400, 0, encoded_shape(schema), schema.label.classes, schema.sha256, "f",
        columns=described_columns(schema), label="outcome",
    )  # fmt: skip
    params = Params.model_validate({"release": {"mechanism": "inputs"}})
    from airlock.records.encoding import pack

    tensors, details = inputs.make(params, facts, Reader([pack(encoded)]), key=b"k" * 32, release_id="id")
    (folder / "release").mkdir()
    save_tensors(folder / "release/release.safetensors", tensors)
    plan = inputs.plan(params, facts)
    data = {"kind": "tabular", "n": 400, "shape": list(facts.shape), "schema": schema.sha256}
    from dataclasses import replace

    manifest.write(
        folder / "release",
        plan=replace(plan, mechanism=mechanism),
        facts=facts,
        release_id="id",
        details={"data": data, **details},
    )


def test_synthetic_records_name_their_release_and_follow_the_schema(clinic: Clinic, tmp_path: Path) -> None:
    release(clinic, tmp_path)
    synthesize.main(room_of(clinic, tmp_path, rows=123, seed=7))
    said = json.loads((tmp_path / "out/synthetic.json").read_text())
    assert said["kind"] == "synthetic" and said["label"] == "open" and said["release"] == "id"
    assert said["epsilon"] == pytest.approx(1.0) and said["rows"] == 123
    assert dict(mark_of(tmp_path / "out/synthetic.parquet") or {}) == said
    schema = load_schema(clinic.root / "data/schemas/clinic.yaml")
    for name in ("synthetic.parquet", "synthetic.csv"):
        (batch,) = open_table(tmp_path / "out" / name).batches([*schema.sources, "outcome"])
        assert batch.num_rows == 123 and encode(batch, schema).valid.all()


def test_synthetic_records_are_refused_by_add_as_mock_ones_are(clinic: Clinic, tmp_path: Path) -> None:
    """Under any name; a file beside which any other JSON lies is added."""
    release(clinic, tmp_path)
    synthesize.main(room_of(clinic, tmp_path, rows=50))
    before = sorted(path for path in clinic.home.folder.rglob("*") if path.is_file())
    for name in ("synthetic.parquet", "synthetic.csv"):
        with pytest.raises(InputError, match="holds synthetic records"):
            add.add(clinic.home, clinic.root, tmp_path / "out" / name, name="clinic")
    assert sorted(path for path in clinic.home.folder.rglob("*") if path.is_file()) == before
    for said in ('{"rows": 3}', '["synthetic"]', '{"kind": 3}', "no JSON"):
        (tmp_path / "out/synthetic.json").write_text(said)
        assert mark_of(tmp_path / "out/synthetic.csv") is None


def test_what_synthetic_records_cannot_be_made_of_is_one_line(clinic: Clinic, tmp_path: Path) -> None:
    release(clinic, tmp_path, mechanism="coefficients")
    with pytest.raises(ReleaseError, match="set release.mechanism to inputs"):
        synthesize.main(room_of(clinic, tmp_path))


def test_batches_for_a_network_never_come_twice(clinic: Clinic, tmp_path: Path) -> None:
    import itertools

    import numpy as np

    from airlock.models.distribution import distribution_of
    from airlock.models.synthesis import stream
    from airlock.storage import load_tensors

    release(clinic, tmp_path)
    made = manifest.load(tmp_path / "release")
    known = distribution_of(made.details, load_tensors(tmp_path / "release/release.safetensors"))
    schema = load_schema(clinic.root / "data/schemas/clinic.yaml")
    batches = list(itertools.islice(stream(known, schema, batch=1000, seed=3), 6))
    assert all(x.shape == (1000, 4) and y.shape == (1000,) for x, y in batches)
    # The first four are of one draw, the others of the next.
    assert not np.array_equal(batches[0][0], batches[4][0])
