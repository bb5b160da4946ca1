"""What is installed at run time is what is imported at run time, and every package has its line in the docs."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = {"airlock", "stages", "flows"}
# Pinned beside Prefect, which imports them: newer ones break its server.
PINNED = {"fastapi", "starlette"}
# The driver that SQLAlchemy looks for when a ledger is on PostgreSQL.
DRIVERS = {"psycopg"}


def imported(*folders: str) -> set[str]:
    """Distributions whose modules are imported anywhere below these folders, by statement or by name."""
    names: set[str] = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module)
        names |= set(re.findall(r'import_module\("([\w.]+)"\)', text))
    tops = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names) - OURS
    found = packages_distributions()
    return {_plain(found.get(top, [top])[0]) for top in tops}


def declared() -> tuple[set[str], set[str]]:
    """Distributions of the tool, and of its extras but the developers'."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: each for name, each in project["optional-dependencies"].items() if name != "dev"}
    return {_name(one) for one in project["dependencies"]}, {
        _name(one) for each in extras.values() for one in each
    }


def _name(requirement: str) -> str:
    return _plain(re.split(r"[\[<>=!~; ]", requirement)[0])


def _plain(name: str) -> str:
    return name.lower().replace("_", "-")


def test_runtime_dependencies_are_what_is_imported() -> None:
    needed, extra = declared()
    really = imported("airlock", "stages", "flows")
    assert needed <= really, f"installed for nothing: {needed - really}"
    assert really <= needed | extra, f"imported without being asked for: {really - needed - extra}"
    assert extra - PINNED - DRIVERS <= really, f"an extra for nothing: {extra - really}"


def test_every_dependency_says_why() -> None:
    text = (ROOT / "docs/dependencies.md").read_text().lower()
    assert not [name for names in declared() for name in names if name not in text]
