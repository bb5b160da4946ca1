"""One state of the project's text files: the workspace, or a commit that is not checked out; and the graph in
it.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from airlock.errors import BoundaryError, InputError
from airlock.evidence import zones
from airlock.inside.digests import sha256_listing, sha256_path

INNARDS = (".git", ".dvc/cache", ".dvc/tmp")
# Sections of DVC's settings that load other parameters, plugins or machines.
CHANGING = ("hydra", "parsing", "feature", "machine")


class Tree(Protocol):
    """Text files of one state of the project."""

    @property
    def name(self) -> str: ...
    @property
    def compiled(self) -> bool:
        """Whether compiled files count: everywhere but where Python
        is at work and leaves them beside code.
        """

    def text(self, path: str) -> str | None: ...
    def files(self, folder: str) -> list[str]: ...
    def digest(self, path: str) -> str | None:
        """SHA-256 of a file or folder as receipts have it; None where it is not there, or not known."""


@dataclass(frozen=True)
class Workspace:
    """The files as they lie on disk, tracked or not; only the innards of git and DVC are left out.

    Where Python is at work, `compiled` files stand beside code; nowhere else is there a reason for them.
    """

    root: Path
    name: str = "workspace"
    compiled: bool = False

    def digest(self, path: str) -> str | None:
        place = self.root / path
        if not os.path.lexists(place):
            return None
        return sha256_path(place, compiled=self.compiled or not zones.is_code(path))

    def text(self, path: str) -> str | None:
        file = self.root / path
        if not file.is_file():
            return None
        if file.resolve() != self.root.resolve() / path:
            raise BoundaryError(f"'{path}' is a link: replace it by the file itself")
        return _decode(file.read_bytes(), path)

    def files(self, folder: str) -> list[str]:
        found: list[str] = []
        top = len(str(self.root)) + 1
        for parent, folders, names in os.walk(self.root / folder):
            prefix = f"{parent[top:]}/" if len(parent) > top else ""
            folders[:] = [name for name in folders if prefix + name not in INNARDS]
            found += [prefix + name for name in names]
        return sorted(found)


@dataclass(frozen=True)
class Commit:
    """The files of one commit, without checking it out."""

    root: Path
    name: str
    compiled: bool = True

    def _git(self, *arguments: str) -> bytes | None:
        done = subprocess.run(["git", *arguments], cwd=self.root, capture_output=True, check=False)
        return done.stdout if done.returncode == 0 else None

    @cached_property
    def _digests(self) -> dict[str, str]:
        """SHA-256 of every file that a stage can declare."""
        listed = self._git("ls-tree", "-z", "-r", self.name, "--", *zones.SOURCES) or b""
        entries = [os.fsdecode(line).split("\t", 1) for line in listed.split(b"\0") if line]
        hashes = self._hashes([words.split()[2] for words, _ in entries])
        return {path: digest for (_, path), digest in zip(entries, hashes, strict=True)}

    def digest(self, path: str) -> str | None:
        if path in self._digests:
            return self._digests[path]
        below = {
            name[len(path) + 1 :]: one for name, one in self._digests.items() if name.startswith(path + "/")
        }
        return sha256_listing(below) if below else None  # an out: git does not have its bytes

    def _hashes(self, blobs: list[str]) -> Iterator[str]:
        """SHA-256 of objects."""
        asked = "".join(f"{blob}\n" for blob in blobs).encode()
        done = subprocess.run(
            ["git", "cat-file", "--batch"], cwd=self.root, input=asked, capture_output=True, check=True
        )
        place = 0
        for _ in blobs:
            end = done.stdout.index(b"\n", place)
            after = end + 1 + int(done.stdout[place:end].split()[2])
            yield hashlib.sha256(done.stdout[end + 1 : after]).hexdigest()
            place = after + 1

    def text(self, path: str) -> str | None:
        found = self._git("show", f"{self.name}:{path}")
        return None if found is None else _decode(found, path)

    def files(self, folder: str) -> list[str]:
        listed = self._git(
            "ls-tree", "-z", "-r", "--name-only", self.name, "--", folder + "/" if folder else "."
        )
        if listed is None:
            raise InputError(f"no commit '{self.name}' here: name one that `git log` lists")
        return sorted(os.fsdecode(name) for name in listed.split(b"\0") if name)


def _decode(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BoundaryError(f"'{path}' is not UTF-8 text: save it as such") from None


def pipelines(tree: Tree) -> list[str]:
    """Every dvc.yaml, the top folder's first: DVC would run any of them."""
    return _pipelines(tree.files(""))


def _pipelines(files: Iterable[str]) -> list[str]:
    found = [path for path in files if path == "dvc.yaml" or path.endswith("/dvc.yaml")]
    return sorted(found, key=lambda path: (path != "dvc.yaml", path))


def tree_of(workspace: Path, rev: str | None = None) -> Tree:
    """The workspace, or the commit `rev` of it."""
    return Commit(workspace, rev) if rev else Workspace(workspace)


def load_graph(workspace: Path) -> zones.Graph:
    """The stages of the working tree.

    Raises:
        BoundaryError: DVC would find something to run that the check does not follow.
    """
    tree = Workspace(workspace)
    files = tree.files("")
    for problem in unfollowed(tree, files):
        raise BoundaryError(problem)
    return graph_of(tree, files)


def graph_of(tree: Tree, files: Sequence[str] | None = None) -> zones.Graph:
    """The stages of all pipelines in `tree`; `files` are all of its files, where they are known already.

    Raises:
        InputError: dvc.yaml or params.yaml is missing.
    """
    texts = {path: tree.text(path) or "" for path in _pipelines(tree.files("") if files is None else files)}
    params = tree.text("params.yaml")
    if "dvc.yaml" not in texts or params is None:
        raise InputError("dvc.yaml or params.yaml is missing: run from the project's top folder")
    return zones.parse(texts.pop("dvc.yaml"), params, texts)


def unfollowed(tree: Tree, files: Sequence[str] | None = None) -> Iterator[str]:
    """What DVC would take into account besides dvc.yaml and the top folder's params.yaml, one line each."""
    files = tree.files("") if files is None else files
    folders = {posixpath.dirname(path) for path in _pipelines(files)} - {""}
    for path in files:
        if path.endswith(".dvc"):
            yield f"'{path}' tracks data with DVC directly: raw data enter by `airlock add` only; remove it"
        elif path.endswith("/params.yaml") and posixpath.dirname(path) in folders:
            yield (
                f"'{path}' would change the commands of the dvc.yaml beside it: put the values into the "
                "top folder's params.yaml"
            )
    for path in (".dvc/config", ".dvc/config.local"):
        for section in _sections(tree.text(path) or ""):
            if section in CHANGING:
                yield f"{path}: the section [{section}] changes what DVC runs: remove it"


def _sections(config: str) -> Iterator[str]:
    for line in config.splitlines():
        if line.strip().startswith("["):
            yield line.strip().strip("[]'\" ").split()[0].lower() if line.strip("[]'\" \t") else ""
