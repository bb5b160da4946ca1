"""Where a bundle's files come from: blobs of a commit, and outs in the DVC cache under the hashes in that
commit's dvc.lock.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from airlock.errors import InputError
from airlock.inside.digests import md5_path
from airlock.run import git
from airlock.run.code import INSIDE_FILES, TOOL
from airlock.workspaces import listings


def resolve(workspace: Path, rev: str) -> tuple[str, str]:
    """Full name of a commit, and when it was made (ISO 8601, UTC).

    Raises:
        InputError: there is no such commit.
    """
    from datetime import UTC, datetime

    name = git.commit_of(workspace, rev)
    seconds = git.ask(workspace, "show", "-s", "--format=%ct", name) or b"0"
    return name, datetime.fromtimestamp(int(seconds), UTC).isoformat()


def write_blobs(workspace: Path, commit: str, paths: Iterable[str], folder: Path) -> None:
    """Write files of a commit below `folder`, byte for byte as git has them."""
    wanted = sorted(paths)
    asked = "".join(f"{commit}:{path}\n" for path in wanted).encode()
    answer = git.ask(workspace, "cat-file", "--batch", given=asked) or b""
    place = 0
    for path in wanted:
        end = answer.index(b"\n", place)
        kind, size = answer[place:end].split()[-2:]
        if kind != b"blob":
            raise InputError(f"'{path}' is not a file in commit {commit[:12]}: commit it and run again")
        place = end + 1 + int(size) + 1
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(answer[end + 1 : place - 1])


def write_tool(folder: Path) -> None:
    """Put all of the installed tool that runs behind the wall below `folder`."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in INSIDE_FILES:
        source, target = TOOL / name, folder / TOOL.name / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copyfile(source, target)


class Cache:
    """The DVC cache of a workspace."""

    def __init__(self, workspace: Path) -> None:
        if not (workspace / ".dvc").is_dir():
            raise InputError(f"{workspace} has no .dvc folder: run from the project's top folder")
        self._objects = listings.cache_of(workspace)

    def write(self, item: Mapping[str, Any], target: Path, *, remote: str) -> None:
        """Write one out, as dvc.lock names it, to `target`.

        Raises:
            InputError: it is not in the cache, or is damaged there; or it has no hash.
        """
        digest = str(item.get("md5"))
        if not listings.HASH.fullmatch(digest.removesuffix(listings.ENDING)):  # it is a place in the cache
            raise InputError(
                f"'{item['path']}' has no hash in dvc.lock: restore it from git, or run `dvc repro`"
            )
        damaged = InputError(
            f"'{item['path']}' is damaged in the DVC cache: remove it there and run `dvc pull -r {remote}`"
        )
        missing = InputError(
            f"'{item['path']}' of that commit is not in the DVC "
            f"cache: run `dvc pull -r {remote}` with it checked out"
        )
        found = self._path(digest)
        if not found.exists():
            raise missing
        if digest.endswith(listings.ENDING):
            if not listings.is_plain(listed := found.read_bytes(), digest.removesuffix(listings.ENDING)):
                raise damaged
            for entry in json.loads(listed):
                if not (part := self._path(entry["md5"])).exists():
                    raise missing
                _copy(part, target / entry["relpath"])
        else:
            _copy(found, target)
        if md5_path(target) != digest:
            raise damaged

    def _path(self, digest: str) -> Path:
        return self._objects / digest[:2] / digest[2:]


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
