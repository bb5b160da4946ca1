"""One state of the project's text files: the workspace, or a commit that is not checked out; and the graph in it."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from airlock.errors import InputError
from airlock.evidence import zones


class Tree(Protocol):
    """Text files of one state of the project."""

    @property
    def name(self) -> str: ...
    def text(self, path: str) -> str | None: ...
    def files(self, folder: str) -> list[str]: ...


@dataclass(frozen=True)
class Workspace:
    """The files as they lie on disk."""

    root: Path
    name: str = "workspace"

    def text(self, path: str) -> str | None:
        file = self.root / path
        return file.read_text() if file.is_file() else None

    def files(self, folder: str) -> list[str]:
        found = []
        for parent, folders, names in os.walk(self.root / folder):
            folders[:] = [name for name in folders if not name.startswith(".")]
            found += [(Path(parent) / name).relative_to(self.root).as_posix() for name in names]
        return sorted(found)


@dataclass(frozen=True)
class Commit:
    """The files of one commit, without checking it out."""

    root: Path
    name: str

    def _git(self, *arguments: str) -> str | None:
        done = subprocess.run(["git", *arguments], cwd=self.root, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else None

    def text(self, path: str) -> str | None:
        return self._git("show", f"{self.name}:{path}")

    def files(self, folder: str) -> list[str]:
        listed = self._git("ls-tree", "-r", "--name-only", self.name, "--", folder + "/" if folder else ".")
        if listed is None:
            raise InputError(f"no commit '{self.name}' here: name one that `git log` lists")
        return sorted(listed.splitlines())


def pipelines(tree: Tree) -> list[str]:
    """Every dvc.yaml, the top folder's first: DVC would run any of them."""
    found = [path for path in tree.files("") if Path(path).name == "dvc.yaml"]
    return sorted(found, key=lambda path: (path != "dvc.yaml", path))


def tree_of(workspace: Path, rev: str | None = None) -> Tree:
    """The workspace, or the commit `rev` of it."""
    return Commit(workspace, rev) if rev else Workspace(workspace)


def load_graph(workspace: Path) -> zones.Graph:
    """The stages of the working tree."""
    return graph_of(Workspace(workspace))


def graph_of(tree: Tree) -> zones.Graph:
    """The stages of all pipelines in `tree`.

    Raises:
        InputError: dvc.yaml or params.yaml is missing.
    """
    texts = {path: tree.text(path) or "" for path in pipelines(tree)}
    params = tree.text("params.yaml")
    if "dvc.yaml" not in texts or params is None:
        raise InputError("dvc.yaml or params.yaml is missing: run from the project's top folder")
    return zones.parse(texts.pop("dvc.yaml"), params, texts)
