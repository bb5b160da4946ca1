"""Every attack of the arsenal, run inside a real open stage, as root and as nobody, and each once more
without a wall as its control.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airlock.wall import layers

HERE = Path(__file__).resolve().parent
AS_ROOT = os.getuid() == 0
NOBODY = 65534
USERS = ["root", "nobody"] if AS_ROOT else ["self"]

pytestmark = [
    pytest.mark.skipif(
        layers.choose("advisory", zone="open") != layers.ALL, reason="not all layers here: airlock doctor"
    ),
    pytest.mark.xdist_group("attacks"),
]


@dataclass(frozen=True)
class Shooting:
    """The arsenal's results as one user in one mode, by attack."""

    results: dict[str, dict[str, Any]]
    outcome: dict[str, Any]

    @property
    def won(self) -> set[str]:
        return {name for name, result in self.results.items() if result["won"]}


def shoot(user: str, mode: str) -> Shooting:
    base = Path(tempfile.mkdtemp(prefix="airlock-attacks-"))
    base.chmod(0o755)
    command = [sys.executable, str(HERE / "stand.py"), mode, str(base)]
    if user == "nobody":
        os.chown(base, NOBODY, NOBODY)
        command = [sys.executable, str(HERE / "disguise.py"), str(NOBODY), *command]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        return Shooting({line.pop("attack"): line for line in answer["results"]}, answer["outcome"])
    finally:
        shutil.rmtree(base)


@pytest.fixture(scope="module", params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def control(user: str) -> Shooting:
    return shoot(user, "bare")


@pytest.mark.parametrize("mode", ["full", "no-root", "minimum"])
def test_every_attack_is_stopped(
    user: str, mode: str, control: Shooting, capsys: pytest.CaptureFixture[str]
) -> None:
    shooting = shoot(user, mode)
    tried, stopped = len(shooting.results), len(shooting.results) - len(shooting.won)
    with capsys.disabled():  # on stderr, which a worker of pytest-xdist shares with the terminal
        said = (
            f"\nattacks as {user}, {mode} wall: {tried} tried, {stopped} stopped; without a wall "
            f"{len(control.won)} of them succeed"
        )
        print(said, file=sys.stderr)
    assert shooting.won == set()
    assert shooting.results.keys() == control.results.keys()
    assert shooting.outcome["returncode"] == 0
    assert shooting.outcome["reads"] == []


def test_every_attack_succeeds_without_the_wall(user: str, control: Shooting) -> None:
    """Otherwise a typo would count as a wall.

    Two excuses: the kernel has no such thing, or an ordinary user may not do it anyway.
    """
    failed = {
        name: result["error"]
        for name, result in control.results.items()
        if not result["won"] and not result["missing"] and not (result["privileged"] and user != "root")
    }
    assert failed == {}
    assert len(control.won) > 100


def test_what_no_attack_can_do_as_nobody_was_done_as_root(control: Shooting, user: str) -> None:
    if user == "root":
        assert all(
            result["won"]
            for result in control.results.values()
            if result["privileged"] and not result["missing"]
        )
