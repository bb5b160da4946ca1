"""Make docs/demo.svg: a real run of `airlock demo` in a terminal of 110 columns, as it looked.

Run from the project's top folder: python docs/demo_picture.py [FILE]   (FILE: what a terminal showed before)
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

TARGET = Path(__file__).with_name("demo.svg")
COLUMNS = 110
FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)  # they would be fetched from elsewhere


def record() -> str:
    """What `airlock demo` shows on a terminal; progress, which comes and goes, is left out."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "airlock", "demo"]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(theirs)
        shown = b"".join(iter(lambda: _read(ours), b""))
    os.close(ours)
    if process.returncode != 0:
        raise SystemExit("airlock demo failed: run it by hand")
    return shown.decode()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:  # the other end is closed
        return b""


def draw(shown: str) -> str:
    """The picture, in fonts that are there."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    home = re.compile(r"/tmp/airlock-demo-\w+/home/workspace-\w+")
    for line in home.sub("~/airlock/clinic", shown.replace("\r\n", "\n")).splitlines():
        console.print(Text.from_ansi(line))
    drawn = FONTS.sub("", console.export_svg(title="airlock demo", unique_id="demo"))
    return re.sub(r"\s*<!-- Generated with Rich.*?-->", "", drawn)


if __name__ == "__main__":
    text = Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else record()
    TARGET.write_text(draw(text))
    print(TARGET)
