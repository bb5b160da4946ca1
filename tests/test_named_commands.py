"""Every command, option, module, import and test that documentation tells a reader to type is there."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import itertools
import re
import shlex
import textwrap
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import typer

from airlock.cli import COMMANDS
from tests.test_named_paths import HISTORY, ROOT, listed

FENCE = re.compile(r"^ *```[^\n]*\n(.*?)^ *```", re.M | re.S)
SPAN = re.compile(r"`([^`]+)`")
INDENTED = re.compile(r"(?:^ {4}.*\n?)+", re.M)
PROGRAM = re.compile(r"```python\n(.*?)^ *```|python3? - <<'?(\w+)'?\n(.*?)^ *\2$", re.M | re.S)
MODULE = re.compile(r"(?<![\w-])python3? -m +([a-z_][\w.]*)([^\n]*)")
PYTEST = re.compile(r"(?<![\w-])pytest ([^\n]*)")
AIRLOCK = re.compile(r"(?:^|(?<=[ (/]))(?<!from )airlock ([a-z-]+)([^\n]*)", re.M)
# What a message gives to type, and what stands for a path in it.
COMMAND = re.compile(r"`[^`]*`|(?:Next|runs|it|or): (?:airlock|cd|dvc|git) [^\n]*")
PATH_WORD = re.compile(
    r"(?:str\()?(?:\w+\.)*(?:path|place|folder|file|home|target|source|project|out|output)\)?"
)
END = re.compile(r"(?:^|\s)#|&&|[;|)(]")
OURS = ("airlock", "stages", "bench", "flows", "tests", "docs")
EVERYWHERE = {"--help", "--debug", "--version"}


def code(name: str, text: str) -> str:
    """What a page, or the first docstring of a program, sets as code, one command a line."""
    if name.endswith(".py"):
        return re.sub(r" *\n +(?=--?\w)", " ", ast.get_docstring(ast.parse(text)) or "")
    rest = FENCE.sub("\n", text)
    blocks = [*FENCE.findall(text), *INDENTED.findall(rest)]
    # A span may go on in the next line.
    spans = [" ".join(span.split()) for span in SPAN.findall(INDENTED.sub("\n", rest))]
    return "\n".join([*(re.sub(r"\\\n\s*", " ", block) for block in blocks), *spans])


def words(rest: str) -> list[str]:
    """Arguments, up to a comment or the next command."""
    told = END.split(rest, maxsplit=1)[0]
    try:
        return shlex.split(told)
    except ValueError:
        return told.split()


def options(arguments: list[str]) -> set[str]:
    """The long ones."""
    return {word.split("=")[0].rstrip(".,:") for word in arguments if re.match(r"--\w", word)}


@cache
def command(name: str) -> Any:
    """A command of the tool, or a group of them."""
    module = importlib.import_module(f"airlock.commands.{name.replace('-', '_')}")
    app = getattr(module, "app", None) or typer.Typer()
    if not hasattr(module, "app"):
        app.command(name)(module.command)
    return typer.main.get_command(app)


def wrong_commands(text: str) -> Iterator[str]:
    """Commands of the tool that are not there, and options that they do not have."""
    for name, rest in AIRLOCK.findall(text):
        if name not in COMMANDS:
            yield f"airlock {name}"
            continue
        found, arguments = command(name), words(rest)
        if parts := getattr(found, "commands", None):
            below = [word.rstrip(",") for word in arguments[:1] if re.fullmatch(r"[a-z-]+,?", word)]
            if below and below[0] not in parts:
                yield f"airlock {name} {below[0]}"
                continue
            found = parts[below[0]] if below else found
        known = {one for parameter in found.params for one in (*parameter.opts, *parameter.secondary_opts)}
        yield from (f"airlock {name} {one}" for one in sorted(options(arguments) - known - EVERYWHERE))


def wrong_modules(text: str) -> Iterator[str]:
    """`python -m` of what is not there, or with an option that its source does not name; tests that are gone."""
    for name, rest in MODULE.findall(text):
        if not exists(name):
            yield f"python -m {name}"
        elif name.split(".")[0] in OURS:
            source = source_of(name)
            yield from (f"{name} {one}" for one in sorted(options(words(rest))) if f'"{one}"' not in source)
    for rest in PYTEST.findall(text):
        for path in (word.rstrip(".,") for word in words(rest) if "/" in word):
            file, _, test = path.partition("::")
            if not (ROOT / file).exists() or (test and f"def {test}(" not in (ROOT / file).read_text()):
                yield f"pytest {path}"


def source_of(name: str) -> str:
    """Of a module; of a package, what is run."""
    path = ROOT / name.replace(".", "/")
    return (path / "__main__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


def wrong_programs(text: str) -> Iterator[str]:
    """Imports, and attributes of imported modules, that are not there."""
    for fenced, _, fed in PROGRAM.findall(text):
        tree, modules = ast.parse(textwrap.dedent(fenced or fed)), dict[str, ModuleType]()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (f"import {one.name}" for one in node.names if not exists(one.name))
            elif isinstance(node, ast.ImportFrom) and not exists(node.module or ""):
                yield f"from {node.module}"
            elif isinstance(node, ast.ImportFrom):
                for one in node.names:
                    found = member(node.module or "", one.name)
                    if found is None:
                        yield f"from {node.module} import {one.name}"
                    elif isinstance(found, ModuleType):
                        modules[one.asname or one.name] = found
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = modules.get(node.value.id)
                if module and member(module.__name__, node.attr) is None:
                    yield f"{module.__name__}.{node.attr}"


def exists(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def member(module: str, name: str) -> Any:
    """What a module has of that name, a module below it too; None if nothing."""
    found = getattr(importlib.import_module(module), name, None)
    return (
        importlib.import_module(f"{module}.{name}") if found is None and exists(f"{module}.{name}") else found
    )


def wrong(name: str, text: str) -> list[str]:
    shown = code(name, text)
    programs = wrong_programs(text) if name.endswith(".md") else ()
    return [*wrong_commands(shown), *wrong_modules(shown), *programs]


def unquoted(source: str) -> list[str]:
    """Paths that a program puts into a command for a user as they are. (Names of data sets and stages are words.)"""
    found = []
    for node in (one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.JoinedStr)):
        given = [ast.unparse(part.value) for part in node.values if isinstance(part, ast.FormattedValue)]
        count = itertools.count()
        text = "".join(
            str(part.value) if isinstance(part, ast.Constant) else f"\0{next(count)}\0"
            for part in node.values
        )
        inside = [given[int(place)] for place in re.findall("\0(\\d+)\0", "".join(COMMAND.findall(text)))]
        found += [expression for expression in inside if PATH_WORD.fullmatch(expression)]
    return found


def test_paths_in_commands_that_a_message_gives_are_quoted() -> None:
    """A path with a space in it must not become two words."""
    programs = [name for name in listed() if name.startswith(("airlock/", "flows/")) and name.endswith(".py")]
    assert len(programs) > 150
    found = {name: unquoted((ROOT / name).read_text()) for name in programs}
    assert not {name: bare for name, bare in found.items() if bare}
    assert unquoted(
        'f"run `chmod 700 {place}`, {path}"; f"Next: cd {project} && x"; f"`dvc {quote(path)}`"'
    ) == [
        "place",
        "project",
    ]


def test_whatever_a_reader_is_told_to_type_is_there() -> None:
    pages = [name for name in listed() if name.endswith(".md") and not name.startswith((*HISTORY, "tests/"))]
    programs = [name for name in listed() if name.startswith(("bench/", "docs/")) and name.endswith(".py")]
    assert len(pages) > 40
    assert len(programs) > 40
    found = {name: wrong(name, (ROOT / name).read_text()) for name in (*pages, *programs)}
    assert not {name: gone for name, gone in found.items() if gone}


def test_what_is_not_there_is_found() -> None:
    """The control: each kind once wrong and once right."""
    page = """
    airlock atack dp-mac
    airlock attack dp-mac --epsilonn 1 --json   # --not-read
    airlock budget spend
    airlock budget show --json
    python -m bench.papers.gone
    python -m bench.attacks --onli dp-mac; python -m bench.attacks --only dp-mac
    python -m pytest -n 0 tests/test_gone.py tests/test_named_commands.py::test_gone
    python - <<'P'
    from stages.params import Params
    from airlock.params import Parameters
    from stages.release.papers.dp_mac import dp_mac
    dp_mac.plan, dp_mac.price
    P
"""
    assert wrong("README.md", page) == [
        "airlock atack",
        "airlock attack --epsilonn",
        "airlock budget spend",
        "python -m bench.papers.gone",
        "bench.attacks --onli",
        "pytest tests/test_gone.py",
        "pytest tests/test_named_commands.py::test_gone",
        "from stages.params",
        "from airlock.params import Parameters",
        "stages.release.papers.dp_mac.dp_mac.price",
    ]
