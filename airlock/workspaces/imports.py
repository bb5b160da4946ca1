"""Which files of the installed tool a stage's code can import, told from its text: nothing is run.

The same question is asked of grimp in the tests; the tool itself should not need a linter's engine.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from airlock.errors import InputError
from airlock.run.code import ENTRY, TOOL


def needed(code: Iterable[Path]) -> set[str]:
    """The tool's files behind these source files: the runner's entry, what they import, at the top or in a
    function, what that imports, and the packages of all of it. Paths are relative to the folder that the tool
    is installed in.

    Raises:
        InputError: a file is not Python.
    """
    waiting = [f"{ENTRY}.__main__", *(name for file in code for name in imported(file))]
    found: set[str] = set()
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += imported(_file(name))
    packages = {name.rsplit(".", up)[0] for name in found for up in range(1, name.count(".") + 1)}
    return {_file(name).relative_to(TOOL.parent).as_posix() for name in found | packages}


@cache
def imported(file: Path) -> frozenset[str]:
    """Modules of the tool that a file names in an import, but for those that only a type checker follows."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError, RecursionError):
        raise InputError(f"{file} is not Python that can be read: mend it") from None
    return frozenset(name for node in _followed(tree) for name in _modules(node))


def _followed(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield other
                yield from _followed(other)
        else:
            yield child
            yield from _followed(child)


def _modules(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        names = [_deepest(node.module, alias.name) for alias in node.names]
    else:
        return
    yield from (name for name in names if name.split(".")[0] == TOOL.name and _file(name).exists())


def _deepest(module: str, name: str) -> str:
    """`from MODULE import NAME` names a module below MODULE, or something in it."""
    return f"{module}.{name}" if _file(f"{module}.{name}").exists() else module


def _file(name: str) -> Path:
    place = TOOL.parent.joinpath(*name.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
