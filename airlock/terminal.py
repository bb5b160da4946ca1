"""What reaches the owner's terminal: text and colours, and nothing that moves the cursor or speaks to the terminal.

Names of files, stages and columns, and all that a bundle or a released file says, are written by others. One
place for all commands: whatever they print goes through here.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Control characters, those that turn text around, and bytes of a name that are no text (Python passes them on as they
# are, and \x9b begins a command too); tabs and ends of lines are text.
_INVISIBLE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_COMMANDS = re.compile(rf"\x1b\[[0-9;]*m|[{_INVISIBLE}]")
# The same, and what a progress bar does to its own line.
_BARS = re.compile(rf"\x1b\[(?:[0-9;]*m|\?25[hl]|[0-9]*A|2K)|(?!\r)[{_INVISIBLE}]")
_WIDEST = 10_000
_CONCEALED = re.compile(r"\x1b\[(?:[0-9;]*;)?8(?:;[0-9;]*)?m")


def guard() -> None:
    """Take over both streams of this process. On a terminal bars are drawn on the second one, which may go up and
    wipe a line: what is printed there besides is made plain before.
    """
    _open_streams()
    sys.stdout = _Plain(sys.stdout)
    sys.stderr = _Plain(sys.stderr, _BARS if sys.stderr.isatty() else _COMMANDS)
    from rich import control

    codes = [code for code in range(0xA0) if code not in (9, 10) and (code < 32 or code > 126)]
    control._CONTROL_STRIP_TRANSLATE.update(dict.fromkeys(codes))


def _open_streams() -> None:
    """A stream that was closed (`>&-`, as some schedulers start programs) leads nowhere from now on. Left closed, its
    number would be that of the next file that is opened, and what is printed would be written into that.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def plain(text: str) -> str:
    """Without anything that a terminal obeys, colours neither."""
    return re.sub(f"[{_INVISIBLE}]", "", text)


def line(text: str) -> str:
    """The same in one line: a name with a line break in it must not say a sentence of its own."""
    return " ".join(plain(text).split("\n"))


def show_uncut(console: Console, table: Table) -> None:
    """Print a table of which no word is to be cut: as wide as it is, where a terminal is narrower (or a log, which
    counts as 80 columns), and then its lines go on in the next.
    """
    width = console.width
    needed = console.measure(table, options=console.options.update(max_width=_WIDEST)).maximum
    console.width = max(width, needed)
    console.print(table, soft_wrap=False)
    console.width = width


def _keep(found: re.Match[str]) -> str:
    """Sequences that were looked for; of single characters none."""
    return found[0] if len(found[0]) > 1 and not _CONCEALED.fullmatch(found[0]) else ""


class _Plain:
    """A stream that passes on text and colours."""

    def __init__(self, stream: TextIO, commands: re.Pattern[str] = _COMMANDS) -> None:
        self._stream, self._commands = stream, commands

    def write(self, text: str) -> int:
        self._stream.write(self._commands.sub(_keep, text))
        return len(text)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def number_words(found: Mapping[str, Any]) -> str:
    """How well a number is predicted, in one line without its end."""
    low, high = found.get("r2_low"), found.get("r2_high")
    between = "" if low is None or high is None else f" ({low:.3f} to {high:.3f})"
    share = "not to be told" if found.get("r2") is None else f"{found['r2']:.3f}"
    return f"R^2       {share}{between}, errors {found['rmse']:.4g} (root mean square) and {found['mae']:.4g} (mean)"
