"""A disk that is full or read-only is one line, not a traceback."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from airlock import cli
from tests.conftest import ROOT


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "/home/x/ledger"),
        OSError(errno.EROFS, "Read-only file system", "/home/x/unfinished"),
        shutil.Error([("a", "b", "[Errno 28] No space left on device: 'a' -> 'b'")]),
    ],
)
def test_disk_that_says_no_is_one_line(
    error: OSError, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "_register", fail)
    monkeypatch.setattr(sys, "argv", ["airlock", "report"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = capsys.readouterr().err
    assert ended.value.code == 1 and told.startswith("airlock: ") and told.count("\n") == 1
    assert "make room or mount it writable" in told


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a disk of its own")
@pytest.mark.parametrize("kilobytes", [0, 40])
def test_a_disk_that_is_really_full_is_one_line_and_nothing_is_added(tmp_path: Path, kilobytes: int) -> None:
    """A small tmpfs, seen by this command alone; at 40 kB keys fit and the ledger does not."""
    work, home = tmp_path / "work", tmp_path / "home"
    home.mkdir()
    for name in ("data/project.json", "data/schemas/wdbc.yaml", "params.yaml"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, work / name)
    fill = "head -c $((512 - KEEP))k /dev/zero > fill".replace("KEEP", str(kilobytes))
    mount = f"mount -t tmpfs -o size=512k,mode=700 none {home} && cd {home} && {{ {fill}; cd {work}; }}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"{mount} && exec {sys.executable} -m airlock data fetch wdbc"],
        cwd=work,
        env={**os.environ, "AIRLOCK_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.stderr.startswith(("mount:", "unshare:")):
        pytest.skip("no mounts here")
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "make room" in done.stderr and not (work / "data/handles").exists()


def test_other_errors_of_the_system_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file", "x")

    monkeypatch.setattr(cli, "_register", fail)
    monkeypatch.setattr(sys, "argv", ["airlock", "report"])
    with pytest.raises(FileNotFoundError):
        cli.main()
