"""Write, then rename: a file is there as a whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from airlock import files


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    target = tmp_path / "folder/file"
    files.replace(target, "first")
    with files.replacing(target) as fresh:
        fresh.write_text("second")
        assert target.read_text() == "first"
    assert target.read_text() == "second" and os.listdir(target.parent) == ["file"]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "file"
    files.replace(target, b"first", durable=True)
    with pytest.raises(KeyboardInterrupt), files.replacing(target, durable=True) as fresh:
        fresh.write_text("half")
        raise KeyboardInterrupt
    assert target.read_text() == "first" and os.listdir(tmp_path) == ["file"]


def test_a_private_file_is_never_open_to_others(tmp_path: Path) -> None:
    with files.replacing(tmp_path / "file", mode=0o600) as fresh:
        assert fresh.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


def test_a_link_is_replaced_and_what_it_leads_to_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "aim").write_text("stays")
    (tmp_path / "link").symlink_to("aim")
    files.replace(tmp_path / "link", "new")
    assert (tmp_path / "aim").read_text() == "stays" and not (tmp_path / "link").is_symlink()


def test_what_a_user_asked_for_is_whole_private_as_before_and_behind_their_link(tmp_path: Path) -> None:
    (tmp_path / "aim").write_text("old and longer")
    (tmp_path / "aim").chmod(0o600)
    (tmp_path / "link").symlink_to("aim")
    files.deliver(tmp_path / "link", "new ü")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "aim").read_bytes() == "new ü".encode()
    assert (tmp_path / "aim").stat().st_mode & 0o777 == 0o600
    files.deliver(tmp_path / "folder/that/was/missing.csv", "x")
    assert (tmp_path / "folder/that/was/missing.csv").read_text() == "x"


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    files.deliver(tmp_path / "pipe", "labels")
    assert os.read(reader, 100) == b"labels" and (tmp_path / "pipe").is_fifo()
    os.close(reader)


def test_what_is_open_already_is_written_to_whatever_it_is(tmp_path: Path) -> None:
    """As in `airlock predict MODEL FILE --output /dev/stdout | sort`, or `>> all.csv`, which lost what was in it."""
    program = (
        "import pathlib, sys; from airlock import files; files.deliver(pathlib.Path(sys.argv[1]), 'x\\n')"
    )
    run = f'"{sys.executable}" -c "{program}"'

    def shell(command: str) -> str:
        asked = ["bash", "-c", command]
        return subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert shell(f"{run} /dev/stdout | cat") == "x\n"
    assert shell(f"{run} >(cat) | cat") == "x\n"
    assert (
        shell(f"echo before > all; {run} /dev/stdout >> all; echo after >> all; cat all")
        == "before\nx\nafter\n"
    )
    assert shell(f"({run} /dev/fd/1; echo after) > all; cat all") == "x\nafter\n"
    assert [path.name for path in tmp_path.iterdir()] == ["all"]
    with pytest.raises(FileNotFoundError):
        files.deliver(Path("/dev/fd/999"), "x")
