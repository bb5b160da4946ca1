"""params.yaml is as it was, whatever ends the run that changed it; what its owner wrote since then stays."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airlock.run import param_changes
from tests.support.clinic import Clinic, make_clinic

CHANGE = """
import sys
from pathlib import Path
from airlock.run import param_changes
work = Path.cwd()
after = param_changes.text_with(work, {"release.epsilon": 0.62})
with param_changes.turn(work), param_changes.changed(work, after, stays=sys.argv[1] == "stays"):
    print("in", flush=True)
    if sys.argv[2:]:
        raise ValueError
    sys.stdin.read()
"""


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clinic:
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    made = make_clinic(tmp_path)
    (made.root / "params.yaml").write_text("dataset: clinic  # ours\nrelease: {epsilon: 1}\n")
    return made


@pytest.fixture
def running(clinic: Clinic) -> Iterator[subprocess.Popen[str]]:
    child = start(clinic, "stays")
    yield child
    child.kill()
    child.wait()


def start(clinic: Clinic, *words: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHANGE, *words],
        cwd=clinic.root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "in\n"
    return child


def text(clinic: Clinic) -> str:
    return (clinic.root / "params.yaml").read_text()


def any_command(clinic: Clinic) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "airlock", "budget", "--help"],
        cwd=clinic.root,
        env=os.environ,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stderr


def test_next_command_puts_back_what_a_killed_run_changed(
    clinic: Clinic, running: subprocess.Popen[str]
) -> None:
    assert "0.62" in text(clinic) and "# ours" in text(clinic)
    assert not any_command(clinic) and "0.62" in text(clinic), "the run that changed it is alive"
    running.kill()
    running.wait()
    assert "as it was before a run that was killed" in any_command(clinic)
    assert text(clinic) == "dataset: clinic  # ours\nrelease: {epsilon: 1}\n"
    assert not any_command(clinic)


def test_an_edit_made_since_then_stays(clinic: Clinic, running: subprocess.Popen[str]) -> None:
    running.kill()
    running.wait()
    (clinic.root / "params.yaml").write_text("dataset: clinic\nrelease: {epsilon: 3}\n")
    assert not any_command(clinic) and "epsilon: 3" in text(clinic)


@pytest.mark.parametrize(
    ("words", "kept"), [(("stays",), True), (("goes",), False), (("stays", "fail"), False)]
)
def test_how_a_run_ends_decides_what_stays(clinic: Clinic, words: tuple[str, ...], kept: bool) -> None:
    child = start(clinic, *words)
    child.communicate()
    assert ("0.62" in text(clinic)) == kept
    assert not param_changes.recover_after_kill(clinic.root)
