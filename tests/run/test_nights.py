"""Nights through the broker: one price, one release a night, and the same bytes whatever dies in between."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from airlock.errors import BudgetRefused, InputError, ReleaseError
from airlock.inside.nights import file_of
from airlock.ledger import Ledger
from airlock.owner import add, nights
from airlock.owner.add import CapRequest
from airlock.owner.home import Project, project
from airlock.owner.nights import Growth
from airlock.params import load_params
from airlock.run import budget, nightly, orders, recovery
from airlock.run import nights as horizons
from airlock.run.stage import run_stage
from tests.conftest import Workspace, make_workspace
from tests.support.clinic import SCHEMA
from tests.support.clinic import records as made_up

RELEASE = "data/released/release"


def batch(number: int, rows: int) -> pa.Table:
    """Records that are on no other night."""
    ages = np.arange(rows) / 8 + number / 64
    return made_up(rows, seed=number).set_column(0, "age", pa.array(ages, pa.float64()))


class Nightly:
    """A clinic whose batches are released stage by stage, in this process."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace, self.root = workspace, workspace.root
        self.home = project(workspace.root)
        (self.root / "data/schemas/clinic.yaml").write_text(SCHEMA)
        for key, value in {"dataset": "clinic", "release.horizon": 3, "release.delta": 1e-6}.items():
            workspace.set(key, value)

    def append(self, number: int, rows: int) -> None:
        """A batch of records that are on no other night."""
        path = self.home.folder.parent / f"night-{number}.csv"
        pyarrow.csv.write_csv(batch(number, rows), path)
        add.add(
            self.home,
            self.root,
            path,
            name="clinic",
            cap=CapRequest(1.1, 1e-6) if number == 1 else None,
            growth=Growth(),
        )

    def night(self, number: int, *stages: str) -> None:
        """Run stages of the pipeline on a batch."""
        self.workspace.set("ingest.night", number)
        for stage in stages or ("ingest", "relevance", "release"):
            run_stage(stage, workspace=self.root)

    @property
    def ledger(self) -> Ledger:
        return Ledger.open(self.home.ledger_url, create=False)

    @property
    def released(self) -> dict[str, Any]:
        return json.loads((self.root / RELEASE / "release.json").read_text())

    def bytes_of(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted((self.root / RELEASE).iterdir())}


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Nightly:
    workspace = make_workspace(tmp_path)
    for name, value in workspace.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(workspace.root)
    return Nightly(workspace)


def test_no_part_is_added_before_a_horizon_is_asked_for(clinic: Nightly, tmp_path: Path) -> None:
    clinic.append(1, 60)
    (tmp_path / "parts").mkdir()
    pyarrow.csv.write_csv(batch(2, 20), tmp_path / "parts/2.csv")
    clinic.workspace.set("release.horizon", None)
    before = sorted((clinic.root / "data/handles").rglob("*"))
    with pytest.raises(InputError, match="release.horizon is null"):
        list(nightly.run(clinic.root, tmp_path / "parts", tell=print))
    assert sorted((clinic.root / "data/handles").rglob("*")) == before


def test_a_night_that_is_asked_for_otherwise_than_the_first_one_says_so(clinic: Nightly) -> None:
    """It would begin another horizon; what it says is not that the first night comes first. Nothing is reserved."""
    clinic.append(1, 60)
    clinic.night(1)
    clinic.append(2, 20)
    paid = clinic.ledger.spent("clinic").epsilon
    clinic.workspace.set("release.features", "hybrid-8-1")
    clinic.night(2, "ingest", "relevance")
    with pytest.raises(InputError, match="a horizon was begun with the first of these nights"):
        run_stage("release", workspace=clinic.root)
    assert clinic.ledger.spent("clinic").epsilon == paid
    clinic.workspace.set("release.features", "auto")
    clinic.night(2)
    assert clinic.released["details"]["horizon"]["night"] == 2


def test_a_night_that_another_schema_counted_is_counted_again_before_a_later_one(clinic: Nightly) -> None:
    """How often records and users come is held by those counts; nothing is reserved without them."""
    clinic.append(1, 60)
    (clinic.root / "data/schemas/clinic.yaml").write_text(SCHEMA + "missing_values: ['', none]\n")
    clinic.append(2, 20)
    clinic.night(1)
    paid = clinic.ledger.spent("clinic").epsilon
    with pytest.raises(InputError, match="night 1 of 'clinic' was counted by another schema"):
        clinic.night(2)
    assert clinic.ledger.spent("clinic").epsilon == paid
    clinic.append(1, 60)
    clinic.night(2, "release")
    assert clinic.released["details"]["horizon"]["night"] == 2


def test_a_night_that_was_forgotten_after_its_release_counts_as_it_was_counted(clinic: Nightly) -> None:
    """Its records are in what was released, and nobody can count them again."""
    clinic.append(1, 60)
    (clinic.root / "data/schemas/clinic.yaml").write_text(SCHEMA + "missing_values: ['', none]\n")
    clinic.append(2, 20)
    clinic.night(1)
    nights.forget(clinic.home, clinic.root, "clinic", 1)
    before = clinic.ledger.head()
    with pytest.raises(InputError, match="night 1 of 'clinic' .* it was forgotten, .*: begin a new horizon"):
        clinic.night(2)
    assert clinic.ledger.head() == before


def test_three_nights_for_one_price_whatever_dies_in_between(
    clinic: Nightly, monkeypatch: pytest.MonkeyPatch
) -> None:
    clinic.append(1, 120)
    clinic.night(1)
    paid = clinic.ledger.spent("clinic").epsilon
    assert paid == pytest.approx(1.0, rel=1e-3)
    first = clinic.released
    assert first["details"]["horizon"]["id"] == first["release_id"]

    # A night that is not the next one is refused before anything is reserved.
    clinic.append(2, 40)
    clinic.append(3, 0)
    clinic.append(4, 8)
    assert [one.status for one in horizons.batches(clinic.home, clinic.root, load_params())] == [
        "released",
        "due",
        "due",
        "beyond the horizon",
    ]
    clinic.night(3, "ingest", "relevance")
    with pytest.raises(InputError, match="night 2 comes before night 3"):
        run_stage("release", workspace=clinic.root)

    # Killed after the stage has made its bytes, before they are archived; then after they are, before the commit.
    clinic.night(2, "ingest", "relevance")
    seen: list[bytes] = []
    with monkeypatch.context() as patch:

        def die(archive: Path, release_id: str, folder: Path) -> None:
            seen.append((folder / "release.safetensors").read_bytes())
            raise KeyboardInterrupt

        patch.setattr(orders.archive, "store", die)
        with pytest.raises(KeyboardInterrupt):
            run_stage("release", workspace=clinic.root)
    with pytest.raises(InputError, match="night 2 comes before night 3"):
        clinic.night(3)
    clinic.night(2, "ingest", "relevance")
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "commit", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run_stage("release", workspace=clinic.root)
    run_stage("release", workspace=clinic.root)
    second = clinic.bytes_of()
    assert second["release.safetensors"] == seen[0]
    assert clinic.released["details"]["data"]["n"] == 160
    assert clinic.released["details"]["horizon"]["former"] == first["release_id"]

    # A night without records is released like any other; an earlier one is replayed.
    clinic.night(3)
    assert clinic.released["n"] == 0
    third = clinic.released["details"]["horizon"]
    assert third["night"] == 3
    assert clinic.ledger.spent("clinic").epsilon == paid
    assert clinic.ledger.spent("clinic").horizons == ((first["release_id"], 3, 3),)
    kept = {path.name for path in horizons.folder_of(clinic.home, third["id"]).iterdir()}
    assert kept == {file_of(Path(), one).name for one in (third["former"], clinic.released["release_id"])}
    clinic.night(2)
    assert clinic.bytes_of() == second
    assert not budget.problems(clinic.home, clinic.root)

    # Past the horizon: refused, with what a next one costs, and that does not fit.
    clinic.workspace.set("ingest.night", 4)
    run_stage("ingest", workspace=clinic.root)
    with pytest.raises(BudgetRefused, match=r"horizon of 3 nights is used up.*ingest.start: 4.*epsilon 1 at"):
        run_stage("relevance", workspace=clinic.root)
    with pytest.raises(BudgetRefused, match="is used up"):
        nightly.due(clinic.root)
    with pytest.raises(BudgetRefused, match="spent of 1.1"):
        nightly.renew(clinic.root)

    # A ledger that was put back is charged again once for the horizon, and not for every night.
    _lose_ledger(clinic.home)
    charged, unclear = recovery.recover(clinic.home, clinic.root, who="t", why="test")
    assert len(charged) == 3
    assert not unclear
    assert clinic.ledger.spent("clinic").epsilon == paid
    assert clinic.ledger.spent("clinic").horizons == ((first["release_id"], 3, 3),)


def test_what_cannot_be_watched_or_renewed_is_refused_and_nothing_is_written(clinic: Nightly) -> None:
    clinic.append(1, 120)
    before = (clinic.root / "params.yaml").read_bytes(), clinic.home.registry.read_bytes()
    for folder in (clinic.root, clinic.root.parent, clinic.home.folder):
        with pytest.raises(InputError, match="holds the workspace or AIRLOCK_HOME"):
            nightly.watch(clinic.root, folder)
    with pytest.raises(InputError, match="is no folder"):
        nightly.watch(clinic.root, clinic.root / "README.md")
    with pytest.raises(InputError, match=r"night 1 is due in the present horizon: `airlock nights run`"):
        nightly.renew(clinic.root)
    assert before == ((clinic.root / "params.yaml").read_bytes(), clinic.home.registry.read_bytes())
    clinic.append(2, 40)
    clinic.append(3, 40)
    clinic.append(4, 40)
    with pytest.raises(InputError, match=r"night 1, 2, 3 is due"):
        nightly.renew(clinic.root)
    assert (clinic.root / "params.yaml").read_bytes() == before[0]


def _lose_ledger(home: Project) -> None:
    """As it was before the first release."""
    Path(home.ledger_url.removeprefix("sqlite:///")).unlink()
    Ledger.open(home.ledger_url, create=True).set_cap("clinic", 1.1, 1e-6, who="t", why="put back")


def test_a_forgotten_night_is_passed_over_and_lost_memory_is_told(clinic: Nightly) -> None:
    """By the strategy of horizons that were begun before there were weighted totals: they go on."""
    clinic.workspace.set("release.options", {"strategy": "square-root"})
    for number, rows in enumerate((120, 40, 30), start=1):
        clinic.append(number, rows)
    clinic.night(1)
    nights.forget(clinic.home, clinic.root, "clinic", 2)
    clinic.workspace.set("ingest.night", 2)
    with pytest.raises(InputError, match="was forgotten"):
        run_stage("ingest", workspace=clinic.root)
    memory = horizons.folder_of(clinic.home, clinic.released["release_id"])
    shutil.move(memory, memory.with_name("away"))
    clinic.night(3, "ingest", "relevance")
    before = clinic.ledger.head()
    with pytest.raises(ReleaseError, match="restore it from a backup"):
        run_stage("release", workspace=clinic.root)
    assert clinic.ledger.head() == before
    shutil.move(memory.with_name("away"), memory)
    run_stage("release", workspace=clinic.root)
    assert clinic.released["details"]["horizon"]["missing"] == [2]
    assert clinic.released["details"]["data"]["n"] == 150


@pytest.mark.stress
def test_the_worked_example_of_the_documentation(workspace: Workspace) -> None:
    """Every line of it, with pipelines as a user runs them: three nights are more than a minute."""
    page = (Path(__file__).parents[2] / "docs/nights.md").read_text()
    lines = page.split("<!-- test: nights -->")[1].split("```")[1].splitlines()[1:]
    assert len(lines) == 9
    (workspace.root / "data/schemas/clinic.yaml").write_text(SCHEMA)
    (workspace.home / "clinic").mkdir()
    for number, (name, rows) in enumerate((("first", 160), ("monday", 40), ("tuesday", 24)), start=1):
        pyarrow.csv.write_csv(batch(number, rows), workspace.home / f"clinic/{name}.csv")
    for key, value in {"release.horizon": 64, "release.delta": 1e-6, "evaluate.holdout": "none"}.items():
        workspace.set(key, value)
    said = [workspace.run("bash", "-c", line).stdout for line in lines]
    assert "64 nights for this price, by weighted totals" in said[2]
    assert "night 1: released" in said[3]
    assert said[6].count("due") == 2
    assert "night 2: released\nnight 3: released" in said[7]
    assert "3 used of 64, 61 left" in said[8]
    metrics = json.loads((workspace.root / "data/metrics/train.json").read_text())
    assert metrics["epsilon"] <= 1
