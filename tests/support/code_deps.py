"""Which files of the tool and of the stages a stage's process can import, whatever params.yaml says.

DVC cannot choose deps by a parameter's value, so a stage depends on the code of every mechanism that it could
be asked for.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import grimp
import yaml

from airlock.run.code import ENTRY, MODULES
from stages.mechanisms import MECHANISMS

ROOT = Path(__file__).parents[2]
PACKAGES = ("airlock", "stages")
HALF = {"relevance": "release", "release": "release", "train": "open"}
PIPELINES = ("dvc.yaml", "owner/dvc.yaml")


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, exclude_type_checking_imports=True, cache_dir=None)


def needed(stage: str) -> set[str]:
    """The files that the stage's code imports, at the top of a module or in a function, and its packages."""
    half = HALF.get(stage)
    roots = {f"{ENTRY}.__main__", MODULES[stage]}
    roots |= {getattr(halves, half) for halves in MECHANISMS.values()} if half else set()
    modules = roots | {found for root in roots for found in graph().find_upstream_modules(root)}
    packages = {module.rsplit(".", up)[0] for module in modules for up in range(1, module.count(".") + 1)}
    return {file_of(module) for module in modules | packages}


def file_of(module: str) -> str:
    path = Path(*module.split("."))
    return str(path / "__init__.py" if (ROOT / path).is_dir() else path.with_suffix(".py"))


def declared(stage: str) -> list[str]:
    """The code deps of a stage as dvc.yaml has them."""
    stages = {name: body for path in PIPELINES for name, body in document(path).items()}
    return [dep for dep in stages[stage]["deps"] if dep.split("/")[0] in PACKAGES]


def document(path: str) -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = yaml.safe_load((ROOT / path).read_text())["stages"]
    return found


def code_below(path: str) -> set[str]:
    """Python files at or below a path."""
    place = ROOT / path
    files = place.rglob("*.py") if place.is_dir() else [place]
    return {str(file.relative_to(ROOT)) for file in files}


def folded(files: set[str]) -> list[str]:
    """The fewest paths that hold exactly these files: a folder in place of all that is in it."""
    folders = sorted({str(up) for file in files for up in Path(file).parents if str(up) != "."}, key=len)
    whole: list[str] = []
    for folder in folders:
        if not any(folder.startswith(f"{one}/") for one in whole) and code_below(folder) <= files:
            whole.append(folder)
    alone = [file for file in files if not any(file.startswith(f"{one}/") for one in whole)]
    return sorted([*whole, *alone])


def write() -> None:
    """Put the needed files into the pipelines, behind each stage's other deps, which stay as they are."""
    for path in PIPELINES:
        lines, kept, stage, in_deps = (ROOT / path).read_text().splitlines(), [], "", False
        for line in lines:
            if line.startswith("  ") and line[2:3].isalpha() and line.endswith(":"):
                stage = line.strip().rstrip(":")
            if in_deps and not line.startswith("    - "):
                kept += [f"    - {found}" for found in folded(needed(stage))]
                in_deps = False
            if in_deps and line[6:].split("/")[0] in PACKAGES:
                continue
            in_deps = in_deps or line == "    deps:"
            kept.append(line)
        (ROOT / path).write_text("\n".join(kept) + "\n")


if __name__ == "__main__":
    if "--write" in sys.argv:
        write()
    else:
        for each in MODULES:
            print(each, *(f"    - {path}" for path in folded(needed(each))), sep="\n")
