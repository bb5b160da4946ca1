"""Nothing that others have written moves the owner's cursor, names a window or hides a line."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from airlock import terminal
from tests.conftest import ROOT

MAIN = "import sys; sys.argv = ['airlock', *sys.argv[1:]]; from airlock.cli import main; main()"
TITLE, CLEAR, HIDE, TURN = "\x1b]0;owned\x07", "\x1b[2J\x1b[H", "\x1b[8m", "\u202e"


@pytest.mark.parametrize(
    "attack", [TITLE, CLEAR, HIDE, "\x1b[38;8m", TURN, "\r", "\x9b2J", "\udc9b2J", "\x08" * 9]
)
def test_a_stream_passes_on_text_and_colours(attack: str) -> None:
    stream = io.StringIO()
    plain = terminal._Plain(stream)
    assert plain.write(f"\x1b[31mred\x1b[0m {attack}text\n") > 0
    written = stream.getvalue()
    assert written.startswith("\x1b[31mred\x1b[0m ") and written.endswith("text\n")
    rest = written.replace("\x1b[31m", "").replace("\x1b[0m", "")
    assert all(mark.isprintable() or mark in "\n\t" for mark in rest)


def test_names_of_files_reach_the_terminal_without_commands(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / f"x{TITLE}[red]y.dvc").write_text("")
    (work / "dvc.yaml").write_text("stages: {}\n")
    (work / "params.yaml").write_text("dataset: wdbc\n")
    (work / "data").mkdir()
    (work / "data/project.json").write_text((ROOT / "data/project.json").read_text())
    environment = {**os.environ, "AIRLOCK_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    for command in (("audit",), ("run", f"x{CLEAR}")):
        asked = [sys.executable, "-P", "-c", MAIN, *command]
        done = subprocess.run(asked, cwd=work, capture_output=True, text=True, env=environment, check=False)
        said = done.stdout + done.stderr
        assert (
            done.returncode in (1, 2) and "\x1b]" not in said and "\x1b[2J" not in said and "\x07" not in said
        )
        assert command[0] == "run" or "[red]y.dvc" in said, "as it is written, not as markup"


def on_a_terminal(command: list[str], work: Path, environment: dict[str, str]) -> str:
    """Both streams are one terminal, as for whoever sits at it."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, cwd=work, env=environment, stdin=theirs, stdout=theirs, stderr=theirs):
        os.close(theirs)
        said = b""
        with suppress(OSError):  # its other end was closed
            while block := os.read(ours, 1 << 16):
                said += block
    os.close(ours)
    return said.decode()


def test_errors_on_a_terminal_are_text(tmp_path: Path) -> None:
    """There progress bars are drawn on the stream that errors go to."""
    (tmp_path / f"x{TITLE}{CLEAR}.zip").write_bytes(b"no bundle")
    environment = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm"}
    asked = [sys.executable, "-P", "-c", MAIN, "verify", f"x{TITLE}{CLEAR}.zip"]
    said = on_a_terminal(asked, tmp_path, environment)
    assert "does not verify" in said
    assert "\x1b]" not in said and "\x07" not in said and "\x1b[2J" not in said and "\x1b[H" not in said
    shown = on_a_terminal(["printf", "%s", TITLE], tmp_path, environment)
    assert shown == TITLE, "the control: a terminal gets it as it is"


def test_what_a_bar_does_to_its_line_is_let_through() -> None:
    stream = io.StringIO()
    bar = "\x1b[?25l\x1b[32mreading\x1b[0m\r\x1b[1A\x1b[2K\x1b[?25h"
    terminal._Plain(stream, terminal._BARS).write(bar + TITLE + CLEAR + HIDE + TURN)
    assert stream.getvalue() == bar + "]0;owned[2J[H"


def test_what_is_nested_without_end_is_one_line(tmp_path: Path) -> None:
    """Models, summaries and reports are written by code that others edit."""
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.json").write_text("[" * 100_000 + "]" * 100_000)
    (tmp_path / "rows.csv").write_text("a\n1\n")
    asked = [sys.executable, "-P", "-c", MAIN, "predict", "model", "rows.csv"]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2) and len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("airlock: ")
