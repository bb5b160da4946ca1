"""What killed runs leave behind goes with the next command, whichever it is; what somebody uses stays."""

from __future__ import annotations

import fcntl
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


TORN = (b"", b'{"write": {"/somewhere/data/sealed": {"pid": 1', bytes(40), b"\xff\xfe", b"[]")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Where DVC was interrupted while it wrote down what it uses."""
    (tmp_path / "work/.dvc/tmp").mkdir(parents=True)
    (tmp_path / "work/.dvc/tmp/rwlock").write_bytes(TORN[0])
    return tmp_path / "work"


@pytest.mark.parametrize("content", TORN)
def test_torn_list_of_dvc_is_swept(home: Path, workspace: Path, content: bytes) -> None:
    torn = workspace / ".dvc/tmp/rwlock"
    torn.write_bytes(content)
    assert [one.path for one in leftovers.find(home, workspace)] == [torn]
    assert leftovers.sweep(home, workspace) == [torn] and not torn.exists()


@pytest.mark.parametrize("content", [b"", bytes(40), b"schema: '2.0'\nstages:\n  ingest:\n    cm"])
def test_torn_lock_of_dvc_is_swept_and_a_whole_one_stays(home: Path, workspace: Path, content: bytes) -> None:
    (workspace / ".dvc/tmp/rwlock").unlink()
    lock = workspace / "dvc.lock"
    lock.write_text("schema: '2.0'\nstages: {}\n")
    assert leftovers.find(home, workspace) == [] and leftovers.sweep(home, workspace) == []
    lock.write_bytes(content)
    assert [one.kind for one in leftovers.find(home, workspace)] == ["torn dvc.lock"]
    assert leftovers.sweep(home, workspace) == [lock] and not lock.exists()


def test_list_that_dvc_can_read_stays(home: Path, workspace: Path) -> None:
    whole = workspace / ".dvc/tmp/rwlock"
    whole.write_text('{"write": {}, "read": {}}')
    assert leftovers.find(home, workspace) == [] and leftovers.sweep(home, workspace) == []
    assert whole.exists()


def test_torn_list_stays_while_dvc_is_at_work(home: Path, workspace: Path) -> None:
    (workspace / "data").mkdir()
    working = subprocess.Popen(["bash", "-c", "exec -a dvc sleep 60"], cwd=workspace / "data")
    try:
        while Path(f"/proc/{working.pid}/cmdline").read_bytes().split(b"\0")[0] != b"dvc":
            pass
        assert [one.why_kept for one in leftovers.find(home, workspace)] == ["DVC is running here"]
        assert leftovers.sweep(home, workspace) == []
    finally:
        working.kill()
        working.wait()
    with (workspace / ".dvc/tmp/rwlock.lock").open("w") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        assert leftovers.sweep(home, workspace) == [], "DVC holds what guards the list"
    assert leftovers.sweep(home, workspace) == [workspace / ".dvc/tmp/rwlock"]


def test_no_list_is_removed_behind_a_link(home: Path, workspace: Path, tmp_path: Path) -> None:
    (workspace / ".dvc/tmp").rename(tmp_path / "elsewhere")
    (workspace / ".dvc/tmp").symlink_to(tmp_path / "elsewhere")
    assert leftovers.sweep(home, workspace) == [] and (tmp_path / "elsewhere/rwlock").exists()


def test_dvc_goes_on_after_the_next_command_of_airlock(tmp_path: Path) -> None:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        here = {**os.environ, "AIRLOCK_HOME": str(tmp_path / "home"), "DVC_NO_ANALYTICS": "1"}
        command = [sys.executable, "-m", *words]
        return subprocess.run(command, cwd=work, env=here, capture_output=True, text=True, check=False)

    work = tmp_path / "work"
    work.mkdir()
    assert run("dvc", "init", "--no-scm", "-q").returncode == 0
    (work / "dvc.yaml").write_text("stages: {one: {cmd: echo x > out, outs: [out]}}")
    (work / ".dvc/tmp/rwlock").write_bytes(TORN[1])
    stopped = run("dvc", "repro")
    assert stopped.returncode != 0 and "rwlock" in stopped.stderr, "the control: DVC does not mend it"
    listed = run("airlock", "doctor").stdout.replace("\n", "")
    assert "rwlock (torn list of DVC): swept" in listed
    assert run("dvc", "repro").returncode == 0
    (work / "dvc.lock").write_bytes(b"")
    stopped = run("dvc", "repro")
    assert stopped.returncode != 0 and "dvc.lock" in stopped.stderr, "the control: DVC does not mend it"
    assert "dvc.lock (torn dvc.lock): swept" in run("airlock", "doctor").stdout.replace("\n", "")
    assert run("dvc", "repro").returncode == 0 and (work / "dvc.lock").stat().st_size
