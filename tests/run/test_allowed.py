"""Names that the runner believes: plain stages, and outs in a short list of places."""

from __future__ import annotations

from pathlib import Path

import pytest

from airlock.evidence import zones
from airlock.run.allowed import out_problem, stage_problem

ROOT = Path(__file__).parents[2]
STAGE = """
stages:
  {name!r}:
    cmd: airlock run {name}
    meta: {{zone: open, module: stages.open.spy}}
    deps: [stages/open]
    outs:
    - {out!r}: {{remote: released}}
"""


@pytest.mark.parametrize(
    "name",
    ["../../../x/clinic", "a/b", "..", ".hidden", "", "A", "1a", "a" * 65, "a b", "a\n", "é", "-x", "a.b"],
)
def test_a_stage_is_called_plainly(name: str) -> None:
    assert stage_problem(name)


@pytest.mark.parametrize("name", ["train", "evaluate-private", "a", "x2-y3"])
def test_plain_names_are_fine(name: str) -> None:
    assert not stage_problem(name)


@pytest.mark.parametrize(
    "out",
    [
        ".venv/lib/python3.11/site-packages/zz.pth",
        ".git/hooks/post-checkout",
        ".github/workflows/x.yml",
        "Makefile",
        "pyproject.toml",
        "setup.py",
        "conftest.py",
        "flows/x.py",
        "tests/x.py",
        "docs/x.md",
        "bench/x",
        "receipts/runner.pub",
        "receipts/train/x.json",
        "owner/dvc.yaml",
        "dvc.lock",
        ".dvc/config.local",
        ".dvc/tmp/x",
        "data",
        "data/project.json",
        "data/raw/x",
        "data/handles/x",
        "data/schemas/x.yaml",
        "data/mine",
        "data/modelx",
        "data/open",
        "data/open/x.dvc",
        "data/open/dvc.yaml",
        "data/model/.gitattributes",
        "data/model/x.pth",
        "data/model/__pycache__",
        "data/model/../../Makefile",
        "data/open/a b",
        "data/open/$HOME",
        "data/open/new\nline",
        "airlock/x.py",
        "stages/open/x.py",
        "/etc/cron.d/x",
        "../x",
    ],
)
def test_outs_lie_in_a_short_list_of_places(out: str) -> None:
    assert out_problem(out, "open")
    graph = zones.parse(STAGE.format(name="spy", out=out), "{}")
    assert zones.problems(graph), "the pipeline is refused with it"


@pytest.mark.parametrize(
    "out", ["data/model", "data/metrics/x.json", "data/plots/a.csv", "data/report", "data/open/mine/x"]
)
def test_the_places_are_there_for_use(out: str) -> None:
    assert not out_problem(out, "open")
    assert zones.problems(zones.parse(STAGE.format(name="spy", out=out), "{}")) == []


def test_each_zone_has_places_of_its_own() -> None:
    assert not out_problem("data/sealed", "sensitive") and not out_problem("data/released/release", "release")
    assert out_problem("data/released/x", "sensitive") and out_problem("data/released", "release")
    assert out_problem("data/sealed", "open") and out_problem("data/released/x", "open")
