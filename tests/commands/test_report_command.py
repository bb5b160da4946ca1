"""`airlock report` says how the run went, where its page is, and whether it is still true."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from airlock.commands.report import framed_page
from airlock.records.handles import Handle
from tests.conftest import Workspace
from tests.support.browser import MISSING, Browser

ROOT = Path(__file__).parents[2]
DVC_YAML = """
stages:
  report:
    cmd: >-
      mkdir -p data/report && touch data/report/report.html
      && cp data/metrics/evaluate.json data/report/summary.json
    meta: {zone: open}
    deps: [data/metrics/evaluate.json]
    outs: [data/report]
"""
SUMMARY = {
    "accuracy": 0.95,
    "records": 114,
    "holdout": "public",
    "reference_accuracy": 0.97,
    "epsilon": None,
    "could_read_records": [],
    "breaches": [],
    "budget": None,
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A small DVC project whose report stage copies its summary."""
    root = tmp_path / "work"
    (root / "data/metrics").mkdir(parents=True)
    (root / "dvc.yaml").write_text(DVC_YAML)
    for name in ("params.yaml", "data/project.json"):
        shutil.copy(ROOT / name, root / name)
    (root / "data/metrics/evaluate.json").write_text(json.dumps(SUMMARY))
    run(root, "git", "init", "-q")
    run(root, "dvc", "init", "-q")
    return root


def run(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return Workspace(root, root.parent / "home").run(*command, check=False)


def test_a_missing_page_is_a_no_with_the_command_that_makes_it(project: Path) -> None:
    done = run(project, "airlock", "report")
    assert done.returncode == 1
    assert done.stdout == "Report    not made yet: run `dvc repro report`\n"


def test_a_page_is_summarised_and_found_until_its_inputs_change(project: Path) -> None:
    assert run(project, "dvc", "repro", "-q").returncode == 0
    done = run(project, "airlock", "report")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "Accuracy  95.0% on 114 public records; 97.0% without privacy",
        "Privacy   nothing was released",
        "Records   no stage could read them; none of the open stages could",
        "Report    data/report/report.html",
    ]
    (project / "data/metrics/evaluate.json").write_text(json.dumps({**SUMMARY, "accuracy": 0.5}))
    done = run(project, "airlock", "report", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert (found["exists"], found["up_to_date"], found["stale"], found["command"]) == (
        True,
        False,
        ["report"],
        "dvc repro report",
    )


KILLED = """
import os, signal, sys
from pathlib import Path
from airlock.run import failures
with failures.noted(Path.cwd(), sys.argv[1]):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_that_failed_is_told_before_the_figures_of_the_run_before_it(project: Path) -> None:
    assert run(project, "dvc", "repro", "-q").returncode == 0
    assert run(project, "airlock", "run", "nothing").returncode == 2
    done = run(project, "airlock", "report")
    assert done.returncode == 1
    first, second, third, *_ = done.stdout.splitlines()
    assert first.startswith("Failed    nothing (")
    assert second == "          What follows is from the run before it."
    assert third.startswith("Accuracy  95.0%")
    (failed,) = json.loads(run(project, "airlock", "report", "--json").stdout)["failed"]
    assert failed["stage"] == "nothing" and failed["words"]


def test_a_data_set_that_was_never_added_is_told_where_dvc_only_misses_a_file(project: Path) -> None:
    text = (project / "dvc.yaml").read_text()
    (project / "dvc.yaml").write_text(text.replace("deps: [", "deps: ['data/handles/${dataset}', ", 1))
    (project / "data/handles/wdbc").mkdir(parents=True)
    handle = Handle("wdbc", "wdbc", "records", "csv", "0" * 64, 569, True)
    (project / "data/handles/wdbc/records.json").write_text(handle.to_json())
    assert run(project, "dvc", "repro", "-q").returncode == 0
    assert run(project, "airlock", "report").stdout.startswith("Accuracy  95.0%")
    params = (project / "params.yaml").read_text().replace("dataset: wdbc", "dataset: nosuch")
    (project / "params.yaml").write_text(params)
    assert "No such file" in run(project, "dvc", "repro").stderr, "the control: DVC stops first"
    done = run(project, "airlock", "report")
    assert done.returncode == 1
    assert "no data set 'nosuch' was added here (wdbc): run `airlock add FILE" in done.stdout.splitlines()[0]


def test_a_killed_run_is_told_until_its_stage_is_up_to_date_again(project: Path) -> None:
    assert run(project, "dvc", "repro", "-q").returncode == 0
    before = (project / "data/metrics/evaluate.json").read_text()
    (project / "data/metrics/evaluate.json").write_text(json.dumps({**SUMMARY, "accuracy": 0.5}))
    assert run(project, "python", "-c", KILLED, "report").returncode == -9
    done = run(project, "airlock", "report")
    assert (done.returncode, done.stdout.split(",")[0]) == (1, "Failed    report (Killed")
    assert "): it was killed\n" in done.stdout
    (project / "data/metrics/evaluate.json").write_text(before)
    assert run(project, "airlock", "report").stdout.startswith("Accuracy  95.0%")


def test_outside_a_project_the_question_is_wrong(tmp_path: Path) -> None:
    done = run(tmp_path, "airlock", "report")
    assert done.returncode == 2
    assert done.stderr.startswith("airlock: DVC cannot tell")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("kind", ["link", "device", "number", "twice"])
def test_a_summary_that_is_no_plain_document_is_one_line(project: Path, kind: str) -> None:
    """It is written behind the wall by code that anyone may edit; a link to /dev/zero took all memory."""
    assert run(project, "dvc", "repro", "-q").returncode == 0
    summary = project / "data/report/summary.json"
    text = summary.read_text()
    summary.unlink()
    if kind == "device":
        summary.symlink_to("/dev/null")
    elif kind == "link":
        summary.symlink_to(project / "data/metrics/evaluate.json")
    elif kind == "number":
        summary.write_text(text.replace("0.95", "9" * 400))
    else:
        summary.write_text(text.replace("{", '{"accuracy": 1.0, ', 1))
    done = run(project, "airlock", "report")
    assert done.returncode == 2 and "cannot be read" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
@pytest.mark.xdist_group("browser")
def test_nothing_in_the_page_runs_when_it_is_opened(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`airlock report --open` opened the file itself: its script spoke to every server of the machine."""
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home/airlock"))
    asked = "http://127.0.0.1:9/asked"
    page = project / "data/report/report.html"
    page.parent.mkdir(parents=True)
    page.write_text(
        f"<p>\"&amp;'</p><img src='{asked}'><script>fetch('{asked}'); top.document.title = 'ran'</script>"
    )
    browser = Browser(tmp_path / "profile")
    try:
        seen = {}
        for name, place in (("framed", framed_page(project)), ("control", page)):
            browser.requests()
            browser.visit(place.as_uri())
            seen[name] = (asked in browser.requests(), browser.run("return document.title") == "ran")
        assert seen == {"framed": (False, False), "control": (True, True)}
    finally:
        browser.close()
