"""A disk that is full or read-only is one line, not a traceback."""

from __future__ import annotations

import errno
import shutil
import sys

import pytest

from airlock import cli


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


def test_other_errors_of_the_system_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file", "x")

    monkeypatch.setattr(cli, "_register", fail)
    monkeypatch.setattr(sys, "argv", ["airlock", "report"])
    with pytest.raises(FileNotFoundError):
        cli.main()
