"""One state of the project's text files: the workspace, or a commit that is not checked out; and the graph in
it.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from airlock.errors import BoundaryError, InputError
from airlock.evidence import dvc_settings, zones
from airlock.inside.digests import sha256_listing, sha256_path
from airlock.run import git, paths

PLAIN_MODES = ("100644", "100755")
COMPILED = (".pyc", ".pyo", ".so", ".pth")
LINK = "a link"
"""In place of a hash: what lies behind one can be changed by whoever owns that, and is not looked at."""
INNARDS = (".git", ".dvc/cache", ".dvc/tmp")
# What a commit must not bring along: settings that are one's own, what DVC keeps and runs from (its queue), an
# environment that Python starts with.
NOT_COMMITTED = (".dvc/config.local", ".dvc/tmp", ".dvc/cache", ".venv", "venv")


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

    def unseen(self) -> Iterator[str]:
        """What no reader of the text files sees, one line each."""


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
        parts = Path(path).parts
        if any(self.root.joinpath(*parts[:end]).is_symlink() for end in range(1, len(parts) + 1)):
            return LINK
        return sha256_path(place, compiled=self.compiled or not zones.is_code(path))

    def text(self, path: str) -> str | None:
        return paths.read_text(self.root, path)

    def unseen(self) -> Iterator[str]:
        """What git has brought here; a folder without git has no commit that could bring anything."""
        listed = git.ask(self.root, "ls-files", "-z", "--stage") or b""
        lines = [os.fsdecode(line).split("\t", 1) for line in listed.split(b"\0") if line]
        yield from _committed((words.split()[0], path) for words, path in lines)

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

    @cached_property
    def _commit(self) -> str:
        """Its full name: what is asked about is one commit, whatever else is called like it."""
        return git.commit_of(self.root, self.name)

    @cached_property
    def entries(self) -> tuple[tuple[str, str, str], ...]:
        """Mode, object and path of everything in it."""
        listed = git.ask(self.root, "ls-tree", "-z", "-r", self._commit) or b""
        lines = [os.fsdecode(line).split("\t", 1) for line in listed.split(b"\0") if line]
        return tuple((words.split()[0], words.split()[2], path) for words, path in lines)

    @cached_property
    def _digests(self) -> dict[str, str]:
        """SHA-256 of every file that a stage can declare."""
        files = [
            (blob, path) for mode, blob, path in self.entries if mode in PLAIN_MODES and zones.is_source(path)
        ]
        hashes = self._hashes([blob for blob, _ in files])
        return {path: digest for (_, path), digest in zip(files, hashes, strict=True)}

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
        answer = git.ask(self.root, "cat-file", "--batch", given=asked) or b""
        place = 0
        for blob in blobs:
            end = answer.find(b"\n", place)
            words = answer[place : max(end, place)].split()
            if len(words) != 3:
                raise BoundaryError(f"git does not have the object {blob}: fetch the whole commit")
            after = end + 1 + int(words[2])
            yield hashlib.sha256(answer[end + 1 : after]).hexdigest()
            place = after + 1

    def text(self, path: str) -> str | None:
        mode, blob = self._places.get(path, ("", ""))
        if not blob:
            return None
        if mode not in PLAIN_MODES:
            raise BoundaryError(f"'{path}' is a link: replace it by the file itself")
        found = git.ask(self.root, "cat-file", "blob", blob)
        return None if found is None else _decode(found, path)

    def unseen(self) -> Iterator[str]:
        yield from _committed((mode, path) for mode, _, path in self.entries)

    @cached_property
    def _places(self) -> dict[str, tuple[str, str]]:
        return {path: (mode, blob) for mode, blob, path in self.entries}

    def files(self, folder: str) -> list[str]:
        return sorted(path for _, _, path in self.entries if not folder or path.startswith(folder + "/"))


def _decode(data: bytes, path: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BoundaryError(f"'{path}' is not UTF-8 text: save it as such") from None


def _committed(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    for mode, path in entries:
        if any(path == name or path.startswith(name + "/") for name in NOT_COMMITTED):
            yield f"'{path}' is in git, and programs outside the wall obey it: `git rm --cached` it"
        elif mode not in PLAIN_MODES:
            kind = "a link" if mode == "120000" else "another repository (a submodule)"
            yield f"'{path}' is {kind}: replace it by the files themselves"
        elif path.lower().endswith(COMPILED):
            yield f"'{path}' is compiled code, which nobody can review: remove it"


def pipelines(tree: Tree) -> list[str]:
    """Every dvc.yaml, the top folder's first: DVC would run any of them."""
    return _pipelines(tree.files(""))


def _pipelines(files: Iterable[str]) -> list[str]:
    found = [path for path in files if path == "dvc.yaml" or path.endswith("/dvc.yaml")]
    return sorted(found, key=lambda path: (path != "dvc.yaml", path))


def tree_of(workspace: Path, rev: str | None = None) -> Tree:
    """The workspace, or the commit `rev` of it."""
    return Workspace(workspace) if rev is None else Commit(workspace, rev)


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
    for path in (dvc_settings.SHARED, dvc_settings.LOCAL):
        yield from dvc_settings.problems(path, tree.text(path) or "")
    yield from tree.unseen()
