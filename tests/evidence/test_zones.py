"""The taint check names the stage and the path of everything that breaks the boundary."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from airlock.errors import BoundaryError, InputError
from airlock.evidence import zones

ROOT = Path(__file__).parents[2]
PIPELINE = yaml.safe_load((ROOT / "dvc.yaml").read_text())


def found(document: dict) -> list[str]:
    return zones.problems(zones.parse(yaml.safe_dump(document), "dataset: wdbc"))


def changed(stage: str, **fields: object) -> dict:
    document = copy.deepcopy(PIPELINE)
    document["stages"][stage].update(fields)
    return document


def test_the_shipped_pipeline_has_no_problem() -> None:
    assert found(PIPELINE) == []


@pytest.mark.parametrize(
    "path", ["data/sealed", "data/sealed/train.sealed", "data", "data/../data/sealed", "."]
)
def test_open_stage_that_depends_on_sealed_data_is_named_with_its_path(path: str) -> None:
    lines = found(changed("train", deps=[*PIPELINE["stages"]["train"]["deps"], path]))
    assert any("'train'" in line and f"'{zones._normal(path)}'" in line for line in lines), lines


def test_open_stage_that_reads_records_through_another_open_stage_is_found() -> None:
    lines = found(changed("train", deps=["data/sealed"]))
    assert any(
        "'evaluate' depends on records through 'data/model' of stage 'train'" in line for line in lines
    )
    assert any("'report' depends on records through" in line for line in lines)


@pytest.mark.parametrize(
    "path", ["data/raw/wdbc/records.parquet", "data/raw", "patients.csv", "../elsewhere/patients.csv"]
)
def test_raw_data_as_a_plain_dependency_is_refused(path: str) -> None:
    lines = found(changed("ingest", deps=[path]))
    assert any("'ingest'" in line and f"'{path}'" in line and "airlock add" in line for line in lines), lines


@pytest.mark.parametrize("meta", [{}, {"zone": "secret"}, {"zone": None}])
def test_stage_without_a_zone_is_refused(meta: dict) -> None:
    assert any("'train' has no zone" in line for line in found(changed("train", meta=meta)))


@pytest.mark.parametrize(
    "cmd",
    [
        "python train.py",
        "airlock run train && cat data/sealed/meta.json",
        "airlock run release",
        ["airlock run train", "id"],
        "airlock  run train",
    ],
)
def test_command_around_the_runner_is_refused(cmd: object) -> None:
    assert any("'train': cmd goes around the runner" in line for line in found(changed("train", cmd=cmd)))


@pytest.mark.parametrize(
    ("stage", "out"),
    [
        ("train", "data/released/model"),
        ("ingest", "data/model2"),
        ("release", "data/sealed/more"),
        ("train", "data/raw/copy"),
        ("train", "data"),
    ],
)
def test_out_whose_label_contradicts_its_stage_is_refused(stage: str, out: str) -> None:
    outs = [*PIPELINE["stages"][stage]["outs"], {out: {"remote": "released"}}]
    lines = found(changed(stage, outs=outs))
    assert any(f"'{stage}'" in line and f"'{out}'" in line and "labelled" in line for line in lines), lines


def test_two_stages_may_not_write_the_same_place() -> None:
    lines = found(changed("evaluate", outs=[{"data/model/more": {"remote": "released"}}]))
    assert any("overlaps an out of stage 'train'" in line for line in lines)


def test_sealed_outs_may_not_go_to_the_released_remote() -> None:
    assert any(
        "remote: sealed" in line
        for line in found(changed("ingest", outs=[{"data/sealed": {"remote": "released"}}]))
    )
    assert any("remote: sealed" in line for line in found(changed("ingest", outs=["data/sealed"])))


@pytest.mark.parametrize("out", ["stages/open", "params.yaml", "data/handles/wdbc", "../out", "/tmp/out"])
def test_stage_may_not_write_over_code_or_outside_the_workspace(out: str) -> None:
    assert any(f"'{out}'" in line for line in found(changed("train", outs=[{out: {"remote": "released"}}])))


def test_only_open_stages_bring_their_own_module() -> None:
    assert any(
        "'release'" in line and "module" in line
        for line in found(changed("release", meta={"zone": "release", "module": "mine"}))
    )
    assert found(changed("train", meta={"zone": "open", "module": "stages.open.train"})) == []


@pytest.mark.parametrize("field", [{"foreach": [1, 2]}, {"matrix": {"a": [1]}}, {"wdir": "sub"}])
def test_templating_that_cannot_be_followed_fails_closed(field: dict) -> None:
    with pytest.raises(BoundaryError, match="'train'"):
        found(changed("train", **field))


def test_pipelines_further_down_are_checked_too() -> None:
    hidden = "stages: {spy: {cmd: cat data/sealed/train.sealed, deps: [data/sealed], wdir: ..}}"
    graph = zones.parse((ROOT / "dvc.yaml").read_text(), "dataset: wdbc", {"deep/dvc.yaml": hidden})
    assert any("'spy'" in line for line in zones.problems(graph))
    with pytest.raises(BoundaryError, match="'spy' in deep/dvc.yaml must work in the top folder"):
        zones.parse(
            (ROOT / "dvc.yaml").read_text(),
            "dataset: wdbc",
            {"deep/dvc.yaml": hidden.replace(", wdir: ..", "")},
        )


def test_the_owners_pipeline_has_no_problem() -> None:
    owner = (ROOT / "owner/dvc.yaml").read_text()
    assert (
        zones.problems(
            zones.parse((ROOT / "dvc.yaml").read_text(), "dataset: wdbc", {"owner/dvc.yaml": owner})
        )
        == []
    )


def test_unknown_reference_to_params_is_an_error_that_names_it() -> None:
    with pytest.raises(BoundaryError, match="release.epsilonn"):
        found(changed("train", deps=["data/${release.epsilonn}"]))


def test_unknown_stage_lists_the_stages() -> None:
    graph = zones.parse((ROOT / "dvc.yaml").read_text(), "dataset: wdbc")
    with pytest.raises(InputError, match="ingest, relevance, release"):
        graph.stage("tarin")


segments = st.lists(
    st.sampled_from(["data", "sealed", "released", "x", "..", "."]), min_size=1, max_size=6
).map("/".join)


@settings(deadline=None)
@given(segments)
def test_no_spelling_of_a_path_lets_an_open_stage_at_sealed_data(path: str) -> None:
    few = {"ingest": PIPELINE["stages"]["ingest"], "train": {**PIPELINE["stages"]["train"], "deps": [path]}}
    lines = found({"stages": few})
    resolved = Path("/w").joinpath(path)
    target = Path(zones.posixpath.normpath(str(resolved)))
    touches = (
        target == Path("/w/data/sealed")
        or Path("/w/data/sealed") in target.parents
        or target in Path("/w/data/sealed").parents
    )
    if touches:
        assert any("'train'" in line for line in lines), path


@pytest.mark.parametrize(
    ("file", "address"),
    [("dvc.yaml", "x"), ("owner/dvc.yaml", "owner/dvc.yaml:x"), ("a;sh/dvc.yaml", "'a;sh/dvc.yaml:x'")],
)
def test_a_stage_is_named_as_it_can_be_typed(file: str, address: str) -> None:
    """Folders have the names that whoever commits gives them, and messages say `dvc repro -f` of it."""
    wdir = ".." if "/" in file else "."
    text = f"stages:\n  x: {{cmd: airlock run x, wdir: {wdir}, meta: {{zone: open}}}}\n"
    texts = {"dvc.yaml": "{}", file: text}
    assert zones.parse(texts.pop("dvc.yaml"), "dataset: wdbc", texts).stage("x").address == address
