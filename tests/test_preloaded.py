"""A command that starts from a process with its imports is the command: status, words, folder and environment."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.conftest import Workspace
from tests.support import preloaded


@pytest.fixture
def place(tmp_path: Path) -> Workspace:
    (tmp_path / "home").mkdir()
    return Workspace(tmp_path, tmp_path / "home")


@pytest.mark.parametrize(
    "command",
    [
        ("airlock", "budget", "show", "--json"),
        ("airlock", "run", "no-such-stage"),
        ("airlock", "--debug", "keys"),
        ("dvc", "root"),
    ],
    ids=" ".join,
)
def test_it_says_and_ends_as_a_start_of_its_own_does(place: Workspace, command: tuple[str, ...]) -> None:
    given = place.environment
    started = subprocess.run(command, cwd=place.root, env=given, capture_output=True, text=True, check=False)
    forked = preloaded.run(command, cwd=place.root, environment=given, timeout=60)
    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    ends = [[line for line in one.stderr.splitlines() if "File" not in line] for one in (forked, started)]
    assert ends[0][-1:] == ends[1][-1:]


def test_several_at_once_have_folders_and_homes_of_their_own(tmp_path: Path) -> None:
    places = []
    for number in range(3):
        (tmp_path / f"{number}/home").mkdir(parents=True)
        places.append(Workspace(tmp_path / str(number), tmp_path / f"{number}/home"))
        subprocess.run(["git", "init", "-q"], cwd=places[-1].root, check=True)
    with ThreadPoolExecutor(len(places)) as threads:
        said = list(threads.map(lambda one: one.run("dvc", "init").returncode, places))
    assert said == [0, 0, 0] and all((one.root / ".dvc/config").exists() for one in places)


def test_below_dvc_airlock_is_forked_too_and_its_failure_is_dvcs(workspace: Workspace) -> None:
    """It runs where DVC runs it, with the environment that DVC has, and DVC sees how it ends."""
    workspace.set("evaluate.holdout", "everything")
    workspace.run("airlock", "data", "fetch", "wdbc")
    done = workspace.run("dvc", "repro", "ingest", check=False)
    assert (
        "evaluate.holdout" in done.stderr
        and "failed to run: airlock run ingest, exited with 2" in done.stderr
    )


@pytest.mark.parametrize("name", ["PYTHONPATH", "LD_PRELOAD", "PYTHONDEVMODE"])
def test_what_an_interpreter_reads_when_it_starts_needs_a_start(place: Workspace, name: str) -> None:
    assert preloaded.fits(("airlock", "audit"), place.environment)
    assert not preloaded.fits(("airlock", "audit"), {**place.environment, name: "1"})
    assert not preloaded.fits(("airlock", "audit"), {**place.environment, "PATH": "/usr/bin"})
    assert not preloaded.fits(("git", "status"), place.environment)
