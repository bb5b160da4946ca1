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


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "/x/y"),
            2,
            "/x/y cannot be used (no such file",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/x/y"),
            2,
            "/x/y cannot be used (permission denied)",
        ),
        (UnicodeEncodeError("ascii", "ü", 0, 1, "not in range"), 2, "set PYTHONIOENCODING=utf-8"),
        (ValueError("could not convert string to float: '734512.125'"), 1, "(ValueError at "),
        (ModuleNotFoundError("No module named 'zzz'", name="zzz"), 1, "(ModuleNotFoundError at "),
    ],
)
def test_what_nobody_foresaw_is_one_line_without_a_value_and_a_traceback_with_debug(
    error: Exception,
    code: int,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(cli, "_register", fail)
    for debug in ([], ["--debug"]):
        monkeypatch.setattr(sys, "argv", ["airlock", *debug, "report"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        told = capsys.readouterr().err
        assert ended.value.code == code and words in told
        assert ("Traceback" in told) == bool(debug)
        assert debug or (told.count("\n") == 1 and "734512" not in told)


def test_what_is_half_made_is_cleared_away_when_a_service_ends_it(tmp_path: Path) -> None:
    """By the signal that `systemctl stop`, `timeout` and a shutdown send."""
    program = (
        "import sys, tempfile, time; from airlock import cli\n"
        "def half(asked):\n"
        f"    with tempfile.TemporaryDirectory(dir={str(tmp_path)!r}):\n"
        "        print('ready', flush=True); time.sleep(600)\n"
        "cli._register = half; sys.argv = ['airlock', 'export']; cli.main()"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert started.stdout and started.stdout.readline() == "ready\n"
    assert len(list(tmp_path.iterdir())) == 1
    started.terminate()
    _, said = started.communicate(timeout=60)
    assert (started.returncode, said) == (130, "airlock: stopped\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_is_no_error_and_its_number_is_given_to_no_file(
    closed: str, tmp_path: Path
) -> None:
    """Otherwise what is printed would be written into the file that got the number."""
    program = (
        "import os, sys; from airlock import terminal; terminal.guard(); print('out'); sys.stderr.write('err');"
        f"assert os.open({str(tmp_path / 'ledger')!r}, os.O_RDWR | os.O_CREAT) > 2"
    )
    command = f'"{sys.executable}" -c "$PROGRAM" {closed} && "{sys.executable}" -m airlock --version {closed}'
    done = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, "PROGRAM": program},
        capture_output=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ledger").read_bytes() == b""
