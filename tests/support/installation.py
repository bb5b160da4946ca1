"""Airlock as somebody installs it: the wheel, in an environment that has nothing but what the wheel asks for.

Downloading torch again would take minutes, so the packages that the wheel's metadata names, and theirs in turn, are
linked from the environment that runs the tests, file by file as their RECORD lists them. Nothing else is there: a
module that only developers have is missing in it, as it would be for a user.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from tests.conftest import ROOT

DISTRIBUTION = "airlock-pipeline"
SITE = Path(sysconfig.get_paths()["purelib"])


def build(folder: Path) -> Path:
    """The wheel of this clone's tracked files, by way of a source archive, as `python -m build` makes it."""
    source = folder / "source"
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in listed.splitlines():
        if not name.startswith(("tests/", "bench/", "docs/")) and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, source / name)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    return next((folder / "dist").glob("*.whl"))


def install(wheel: Path, folder: Path) -> Path:
    """A new environment with the wheel and its dependencies; its `bin`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    site = folder / SITE.relative_to(sys.prefix)
    for name in sorted(dependencies()):
        for file in metadata.distribution(name).files or ():
            _link(SITE / file, site / file)
    put(wheel, folder)
    return folder / "bin"


def put(wheel: Path, folder: Path) -> None:
    """Install a wheel into an environment by pip, without an index."""
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "install", "--quiet"]
    options = ["--disable-pip-version-check", "--no-index", "--no-deps", "--force-reinstall"]
    subprocess.run([*pip, *options, str(wheel)], check=True, capture_output=True)


def dependencies() -> set[str]:
    """Names of all distributions that the wheel needs, without extras."""
    found: set[str] = set()
    waiting = list(_required(DISTRIBUTION, set()))
    while waiting:
        name, extras = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _required(name, extras)
    return found


def _required(name: str, extras: set[str]) -> Iterator[tuple[str, set[str]]]:
    for line in metadata.requires(name) or ():
        wanted = Requirement(line)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": one}) for one in ("", *extras)):
            yield re.sub(r"[-_.]+", "-", wanted.name).lower(), set(wanted.extras)


def _link(source: Path, target: Path) -> None:
    if not source.is_file():
        return
    target = Path(os.path.normpath(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.parent.name == "bin":  # a program of the package: it names its interpreter
        text = source.read_bytes()
        target.write_bytes(text.replace(sys.prefix.encode(), str(target.parents[1]).encode()))
        target.chmod(0o755)
        return
    try:
        os.link(source, target)
    except FileExistsError:
        pass
    except OSError:  # another file system
        shutil.copy2(source, target)
