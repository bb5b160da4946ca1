"""`airlock new`: a workspace of its own, with its first commit."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from airlock.errors import InputError
from airlock.owner.home import IDENTITY, NAME
from airlock.records.drafting import slug
from airlock.workspaces import layout, lock

AUTHOR = ("-c", "user.name=airlock", "-c", "user.email=airlock@localhost")


def create(target: Path, identity: str | None = None) -> str:
    """Make the workspace; all of it or nothing.

    Args:
        target: where.
        identity: of the project whose keys and ledger it shares; a new one otherwise.

    Returns:
        The commit.

    Raises:
        InputError: the place is taken, or lies inside another workspace.
    """
    target = target.absolute()
    name = slug(target)
    if identity is not None and not NAME.fullmatch(identity):
        raise InputError(f"'{identity}' is no id: data/project.json of the other workspace has it")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} is not empty: give a new folder")
    if outer := next((folder for folder in target.parents if (folder / IDENTITY).exists()), None):
        raise InputError(f"{target} lies inside the workspace {outer}: choose a folder beside it")
    if not target.parent.is_dir():
        raise InputError(f"there is no folder {target.parent}: make it first")
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as temporary:
        root = Path(temporary) / target.name
        root.mkdir()
        followed = layout.followed()
        write(root, followed | layout.once(name, identity or f"{name[:40]}-{secrets.token_hex(4)}"))
        write(root, layout.locks(root) | {lock.SHIPPED: note(followed)})
        git(root, "init", "-q", "-b", "main")
        commit(root, f"Start {name} with airlock {layout.version()}")
        if target.exists():
            target.rmdir()
        shutil.move(root, target)
    return git(target, "rev-parse", "HEAD").strip()


def write(root: Path, files: Mapping[str, bytes]) -> None:
    """Put files below a folder."""
    for name, data in files.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        if name in layout.EXECUTABLE:
            place.chmod(0o755)


def note(followed: Mapping[str, bytes]) -> bytes:
    """What was shipped, so that an upgrade knows what nobody has edited."""
    files = {name: hashlib.sha256(data).hexdigest() for name, data in followed.items()}
    return (
        json.dumps({"airlock": layout.version(), "files": files}, indent=1, sort_keys=True) + "\n"
    ).encode()


def commit(root: Path, subject: str) -> None:
    """Commit everything, under the user's own name where git knows it."""
    git(root, "add", "-A")
    git(root, *author(root), "commit", "-q", "-m", subject)


def author(root: Path) -> tuple[str, ...]:
    """What git must be told where it does not know the user's name."""
    known = git(root, "config", "user.email", fails=True).strip() or os.environ.get("GIT_AUTHOR_EMAIL")
    return () if known else AUTHOR


def git(root: Path, *arguments: str, fails: bool = False) -> str:
    """What git says.

    Raises:
        InputError: it is missing, or refuses, unless it `fails` rightly.
    """
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise InputError("git is not installed, and a workspace needs it: install git") from None
    if done.returncode != 0 and not fails:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise InputError(f"`git {' '.join(arguments)}` failed: {reason}")
    return done.stdout
