"""What killed runs leave behind goes with the next command, whichever it is; what somebody uses stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airlock.run import leftovers

ID = "a" * 64


@pytest.fixture
def dead() -> int:
    """The number of a process that is gone."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    return gone.pid


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    memory = tmp_path / "memory"
    memory.mkdir()
    monkeypatch.setattr(leftovers, "MEMORY", memory)
    for name in ("archive", "keys"):
        (tmp_path / "home/clinic" / name).mkdir(parents=True)
    return tmp_path / "home"


def test_dead_ones_go_and_all_else_stays(home: Path, dead: int) -> None:
    clinic, memory = home / "clinic", leftovers.MEMORY
    swept = {
        memory / f"airlock-{dead}-abc_1234",
        clinic / f"airlock-{dead}-spool",
        clinic / "archive" / f".{ID}-{dead}-abcdefgh",
        clinic / "archive" / f".{ID}-abcdefgh",
    }
    kept = {
        memory / f"airlock-{os.getpid()}-abc_1234",
        memory / "airlock-cell-abc",
        clinic / f"airlock-{os.getpid()}-spool",
        clinic / "archive" / ID,
        clinic / "archive" / f".{ID}-{os.getpid()}-abcdefgh",
        clinic / "archive" / f".{'b' * 64}-abcdefgh",
    }
    for folder in swept | kept:
        folder.mkdir()
        (folder / "file").write_text("x")
    os.utime(clinic / "archive" / f".{ID}-abcdefgh", (0, 0))
    old, new = clinic / "keys/.master-0123456789abcdef", clinic / "keys/.master-0123456789abcdee"
    for file in (old, new, clinic / "keys/master"):
        file.write_text("secret")
    os.utime(old, (0, 0))
    assert set(leftovers.sweep(home)) == {*swept, old}
    assert all(folder.is_dir() for folder in kept)
    assert new.exists() and (clinic / "keys/master").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_what_belongs_to_others_stays_and_is_named(home: Path, dead: int) -> None:
    foreign = leftovers.MEMORY / f"airlock-{dead}-abcdefgh"
    foreign.mkdir()
    os.chown(foreign, 65534, 65534)
    assert leftovers.sweep(home) == []
    assert [one.why_kept for one in leftovers.find(home)] == ["belongs to another user"]


def test_link_is_removed_and_not_followed(home: Path, dead: int, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (leftovers.MEMORY / f"airlock-{dead}-abcdefgh").symlink_to(tmp_path / "precious")
    leftovers.sweep(home)
    assert (tmp_path / "precious").is_dir()


@pytest.mark.parametrize("command", [["budget", "--help"], ["doctor"], ["doctor", "--json"], ["nonsense"]])
def test_any_command_sweeps_and_the_doctor_tells(tmp_path: Path, dead: int, command: list[str]) -> None:
    left = [
        tmp_path / "home/clinic" / f"airlock-{dead}-abcdefgh",
        Path(f"/dev/shm/airlock-{dead}-{os.getpid()}"),
    ]
    for folder in left:
        folder.mkdir(parents=True)
    done = subprocess.run(
        [sys.executable, "-c", "from airlock.cli import main; main()", *command],
        env={**os.environ, "AIRLOCK_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not any(folder.exists() for folder in left), done.stderr
    if command == ["doctor"]:
        assert f"{left[0]} (run): swept" in done.stdout
    if "--json" in command:
        listed = {one["path"]: one for one in json.loads(done.stdout)["leftovers"]}
        assert listed[str(left[0])] == {"path": str(left[0]), "kind": "run", "kept": ""}
