"""Every file that documentation, docstrings and comments name is there."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Paths of two parts and more anywhere, and names of source files between backticks.
WITH_FOLDER = re.compile(r"(?<![\w/.:{}~*-])[a-z][\w-]*(?:/[\w-]+)+\.(?:py|md|css|svg|html)\b")
IN_BACKTICKS = re.compile(r"`([\w-]+(?:/[\w-]+)*\.(?:py|md))`")
# A name in capitals stands for any. The changelog, and results of research, name what was.
ANY = re.compile(r"(?:^|/)[A-Z_]+\.|/[A-Z]+/")
# Made by a run; of another project (Opacus); of the worked example of a mechanism; what an attacker would plant.
ELSEWHERE = {
    "data/report/report.html",
    "examples/mnist.py",
    "yaml.py",
    "stages/release/mechanisms/total.py",
    "docs/proofs/total.md",
}
HISTORY = ("CHANGELOG.md", "bench/results/")


@cache
def listed() -> tuple[str, ...]:
    found = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return tuple(name for name in found.stdout.splitlines() if (ROOT / name).is_file())


def prose(name: str) -> str:
    """What a file says to readers: all of it, or the comments and docstrings of a program."""
    text = (ROOT / name).read_text()
    if not name.endswith(".py"):
        return text
    places = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    said = [ast.get_docstring(node) or "" for node in ast.walk(ast.parse(text)) if isinstance(node, places)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join([*said, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def missing(name: str, text: str) -> set[str]:
    """Paths that a text names and that are not there: from the top, from its own folder, or as the end of a path."""
    return {
        path
        for path in {*WITH_FOLDER.findall(text), *IN_BACKTICKS.findall(text)}
        if path not in ELSEWHERE
        and not ANY.search(path)
        and not (ROOT / path).exists()
        and not ((ROOT / name).parent / path).exists()
        and not any(file.endswith(f"/{path}") for file in listed())
    }


def test_every_path_that_is_named_exists() -> None:
    kinds = (".py", ".md", ".yaml", ".toml", "Makefile")
    names = [name for name in listed() if name.endswith(kinds) and not name.startswith(HISTORY)]
    assert len(names) > 300
    assert not {name: gone for name in names if (gone := missing(name, prose(name)))}


def test_a_path_that_is_gone_is_found() -> None:
    """The control."""
    gone = {"stages/release/engine.py", "models/lower.py"}
    assert missing("README.md", "see stages/release/engine.py and `models/lower.py`") == gone
    assert not missing("README.md", "see airlock/files.py, `doors.py`, `release/doors.py` and docs/PAGE.md")
