"""Released bytes, kept for replay: a committed release is given out again without reading or charging
anything.

A release is in the archive as a whole or not at all: it is copied beside its place, synced, checked and
renamed.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path

from airlock.errors import ReleaseError
from airlock.files import sync
from airlock.inside import manifest
from airlock.run import leftovers


def store(archive: Path, release_id: str, folder: Path) -> str:
    """Keep a copy of a release; storing the same bytes again changes nothing.

    Returns:
        SHA-256 of its release.json.

    Raises:
        ReleaseError: if `folder` is not that release, or other bytes are archived under its id.
    """
    found = manifest.load(folder).release_id
    if found != release_id:
        raise ReleaseError(f"{folder.name} is release {found[:12]}, not {release_id[:12]}: run `dvc repro`")
    archive.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not _copy(folder, archive / release_id):
        archived = manifest.digest(archive / release_id)
        if archived != manifest.digest(folder):
            raise ReleaseError(
                f"release {release_id[:12]} is archived with other bytes (release.json {archived[:12]}): "
                "nothing was written; "
                f"raise the mechanism's version, which gives it a new id"
            )
    return manifest.digest(folder)


def holds(archive: Path, release_id: str) -> bool:
    """Whether a release was stored, committed or not."""
    return (archive / release_id).is_dir()


def restore(archive: Path, release_id: str, target: Path, *, manifest_sha256: str | None = None) -> str:
    """Write an archived release to `target`, in place of whatever is there.

    Args:
        manifest_sha256: what the ledger committed; checked if given.

    Returns:
        SHA-256 of its release.json.

    Raises:
        ReleaseError: if it is not in the archive, or is not what was committed.
    """
    source = archive / release_id
    if not holds(archive, release_id):
        raise ReleaseError(
            f"release {release_id[:12]} is not in the archive: restore AIRLOCK_HOME from a backup, or `dvc "
            "pull` the release"
        )
    digest = manifest.digest(source)
    if manifest.load(source).release_id != release_id or digest != (manifest_sha256 or digest):
        raise ReleaseError(
            f"the archived release {release_id[:12]} is not what the ledger committed: restore AIRLOCK_HOME "
            "from a backup"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)
    if not _copy(source, target):
        raise ReleaseError(
            f"{target.name} appeared while it was being restored: run one `dvc repro` at a time"
        )
    return digest


def _copy(source: Path, target: Path) -> bool:
    """Copy a folder so that it appears complete and on disk, or not at all.

    False if `target` is there already.
    """
    if target.exists():
        return False
    leftovers.sweep_folder(target.parent)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-{os.getpid()}-", dir=target.parent))
    try:
        shutil.copytree(source, temporary, dirs_exist_ok=True)
        for path in (*temporary.rglob("*"), temporary):
            sync(path)
        manifest.load(temporary)
        os.rename(temporary, target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        return False  # another process was faster
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    sync(target.parent)
    return True
