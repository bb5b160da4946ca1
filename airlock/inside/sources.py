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

PACKAGES = ("airlock", "stages")


class Source(SourceFileLoader):
    """A loader that compiles what it reads, every time."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


class Sources(MetaPathFinder):
    """Finds modules of the two packages, as files `NAME.py` and folders with an `__init__.py`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        first, *_ = fullname.split(".")
        if first not in PACKAGES:
            return None
        last = fullname.rpartition(".")[2]
        for folder in path if path is not None else sys.path:
            package, module = os.path.join(folder, last, "__init__.py"), os.path.join(folder, f"{last}.py")
            if os.path.isfile(package):
                where = [os.path.dirname(package)]
                return spec_from_file_location(
                    fullname, package, loader=Source(fullname, package), submodule_search_locations=where
                )
            if os.path.isfile(module):
                return spec_from_file_location(fullname, module, loader=Source(fullname, module))
        raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def only() -> None:
    """From here on."""
    sys.meta_path.insert(0, Sources())
