"""Modules of the stages and of the tool, imported from their sources and from nothing else.

Python takes a compiled module in place of its source without reading that. Hashes and reviews are of sources; so
behind the wall nothing compiled is looked for, wherever it may lie. (Packages of the environment, which no one can
change by way of the workspace, keep theirs: an own prefix for all would compile torch on every run, 3.3 seconds where
this takes 0.03.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from types import CodeType, ModuleType

from airlock.errors import InputError

PACKAGES = ("airlock", "stages")


class NotShown(InputError, ModuleNotFoundError):
    """A module of the stages that is not there, or that the stage does not declare."""


class Source(SourceFileLoader):
    """A loader that compiles what it reads, every time."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class Sources(MetaPathFinder):
    """Finds modules of the two packages, as files `NAME.py` and folders with an `__init__.py`.

    What a stage does not declare it cannot read: a folder whose `__init__.py` is such a file is one without.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        first, *_ = fullname.split(".")
        if first not in PACKAGES:
            return None
        last = fullname.rpartition(".")[2]
        folders = [os.path.join(folder, last) for folder in (path if path is not None else sys.path)]
        for folder in folders:
            package, module = os.path.join(folder, "__init__.py"), f"{folder}.py"
            if _readable(package):
                return spec_from_file_location(
                    fullname, package, loader=Source(fullname, package), submodule_search_locations=[folder]
                )
            if _readable(module):
                return spec_from_file_location(fullname, module, loader=Source(fullname, module))
        if first == "stages":
            return _bare(fullname, folders)
        raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def _readable(path: str) -> bool:
    """Whether it is there for this process: Landlock shows names of files that it does not let anyone open."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return False
    return os.path.isfile(path)


def _bare(fullname: str, folders: Sequence[str]) -> ModuleSpec:
    found = [folder for folder in folders if os.path.isdir(folder)]
    if not found:
        raise NotShown(
            f"there is no module {fullname} among what this stage may read: add its file to its deps in dvc.yaml",
            name=fullname,
        )
    spec = ModuleSpec(fullname, None, is_package=True)
    spec.submodule_search_locations = found
    return spec


def only() -> None:
    """From here on."""
    sys.meta_path.insert(0, Sources())
