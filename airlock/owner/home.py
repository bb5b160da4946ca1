"""AIRLOCK_HOME: where keys, ledgers, archive, drafts and the owner's log live, outside every workspace."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airlock.errors import BoundaryError, InputError, KeysError
from airlock.files import parse_json, read_plain, replace

IDENTITY = "data/project.json"
FOLDERS = (".dvc", "data", "data/handles", "data/schemas", "receipts", "stages")
"""Of a workspace, which commands read and write by their names: none of them may lead elsewhere."""
NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
LONGEST_LINE, LARGEST_LOG = 1 << 20, 64 << 20
"""Bytes of the owner's log: of one line, and of one file."""


@dataclass(frozen=True)
class Project:
    """One project's private folder. Clones and queued experiments of the project share it by its id."""

    id: str
    folder: Path

    @property
    def keys(self) -> Path:
        """Master, scratch and signing keys."""
        return self.folder / "keys"

    @property
    def ledger_url(self) -> str:
        """The ledger of private populations; a team may name its own database."""
        return os.environ.get("AIRLOCK_LEDGER_URL") or f"sqlite:///{self.folder / 'ledger.db'}"

    @property
    def scratch_url(self) -> str:
        """The ledger of public populations."""
        return f"sqlite:///{self.folder / 'scratch.db'}"

    @property
    def archive(self) -> Path:
        """Bytes of committed releases, for replaying them."""
        return self.folder / "archive"

    @property
    def receipts(self) -> Path:
        """Copies of all receipts, for those whose workspace is gone (queued experiments)."""
        return self.folder / "receipts"

    @property
    def log(self) -> Path:
        """The owner's log, one JSON-lines file per stage."""
        return self.folder / "log"

    @property
    def checkpoints(self) -> Path:
        """Where stages that were killed go on, by workspace, and then by release id or stage."""
        return self.folder / "checkpoints"

    @property
    def dvc(self) -> Path:
        """Where DVC keeps its notes about files: it reads some of them with pickle."""
        return self.folder / "dvc"

    def used_by(self, workspace: Path) -> Path:
        """Where it is noted that stages of a workspace were run with these keys."""
        name = hashlib.sha256(os.fsencode(workspace.resolve())).hexdigest()[:32]
        return self.folder / "workspaces" / name

    @property
    def drafts(self) -> Path:
        """Schemas that nobody has confirmed yet."""
        return self.folder / "drafts"

    @property
    def registry(self) -> Path:
        """Where each population's raw files are, and every fingerprint ever seen."""
        return self.folder / "registry.json"

    @property
    def spool(self) -> Path:
        """Where this process keeps a copy of records from elsewhere, while it reads them; a killed one's is
        swept by the next run.
        """
        return self.folder / f"airlock-{os.getpid()}-spool"


def project(workspace: Path) -> Project:
    """The project that `workspace` belongs to; its folder is made where it is missing.

    Raises:
        InputError: the workspace names no project, or AIRLOCK_HOME lies inside the workspace.
        BoundaryError: a folder of the workspace is a link.
        KeysError: others can write to its folder, or the workspace was used with another project.
    """
    identity = _identity(workspace)
    home = home_folder()
    if home.resolve().is_relative_to(workspace.resolve()):
        raise InputError(
            "AIRLOCK_HOME is inside the workspace: choose a folder "
            "outside of it, keys must never be versioned"
        )
    folder = home / identity
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        home.mkdir(mode=0o700, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be made ({(error.strerror or 'error').lower()}): set AIRLOCK_HOME to a folder of your own"
        ) from None
    check_not_exchanged(home)
    check_private(folder)
    named = Project(identity, folder)
    _check_not_another(named, workspace)
    return named


def remember(place: Project, workspace: Path) -> None:
    """Note that stages of this workspace were run with this project's keys. (Not of an experiment's copy, which
    lives as long as the experiment.)
    """
    note = place.used_by(workspace)
    if ".dvc" not in workspace.parts and not note.exists():
        write_private(note, f"{workspace.resolve()}\n".encode())


def _check_not_another(named: Project, workspace: Path) -> None:
    """A pull request may name another of the owner's projects: its keys, its records and its budget.

    Raises:
        KeysError: stages of this workspace were run with another project, and never with this one, which has keys.
    """
    if not (named.keys / "master").exists() or named.used_by(workspace).exists():
        return
    others = (Project(folder.name, folder) for folder in sorted(named.folder.parent.iterdir()))
    for other in others:
        if (note := other.used_by(workspace)).exists():
            raise KeysError(
                f"{IDENTITY} names the project '{named.id}', whose keys are here, and this workspace was used "
                f"with '{other.id}': restore it from git; if you mean it, remove {note}"
            )


def check_not_exchanged(home: Path) -> None:
    """Refuse an AIRLOCK_HOME in which other users can rename a project's folder: another one, or an older copy, would
    stand in its place.

    Raises:
        KeysError: naming the folder and the command that mends it.
    """
    mode = home.stat().st_mode
    if mode & 0o002 and not mode & stat.S_ISVTX:
        raise KeysError(
            f"AIRLOCK_HOME ({home}) is open to other users: run `chmod o-w {shlex.quote(str(home))}` and look at "
            "what is in it"
        )


def check_private(folder: Path) -> None:
    """Refuse a folder in which other users could put or replace files: keys and ledger would be theirs to
    choose.

    Raises:
        KeysError: naming the folder and the command that mends it.
    """
    for place in (folder, folder / "keys"):
        try:
            status = os.lstat(place)
        except FileNotFoundError:
            continue
        if not stat.S_ISDIR(status.st_mode):
            raise KeysError(
                f"{place} is not a folder of its own: remove the link, keys are not kept behind one"
            )
        if status.st_uid not in (0, os.geteuid()):
            raise KeysError(f"{place} belongs to another user: choose another AIRLOCK_HOME, or `chown` it")
        if status.st_mode & 0o022 or (place.name == "keys" and status.st_mode & 0o077):
            raise KeysError(
                f"{place} is open to other users: run `chmod 700 {shlex.quote(str(place))}` and look at what is in it"
            )


def _identity(workspace: Path) -> str:
    for name in FOLDERS:
        if (workspace / name).is_symlink():
            raise BoundaryError(f"'{name}' is a link: replace it by the folder itself")
    try:
        identity = parse_json(read_plain(workspace / IDENTITY))["id"]
    except FileNotFoundError:
        raise InputError(f"{IDENTITY} is missing: run from the project's top folder") from None
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(f'{IDENTITY} must be {{"id": "NAME"}}: restore it from git') from None
    if not isinstance(identity, str) or not NAME.fullmatch(identity):
        raise InputError(f"{IDENTITY}: the id may have lower-case letters, digits, '-' and '_' only")
    return identity


def home_folder() -> Path:
    """Where all projects' private folders are: AIRLOCK_HOME, or the user's own data folder."""
    if chosen := os.environ.get("AIRLOCK_HOME"):
        return Path(chosen).expanduser().absolute()
    from platformdirs import user_data_dir

    return Path(user_data_dir("airlock")).absolute()


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, all of it or nothing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace(path, data, mode=0o600, durable=True)


def account() -> str:
    """Who is at work, as the ledger writes it down: the account's name, or its number where it has none, as in a
    container that runs under a bare uid.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def owner_log(project: Project, stage: str, event: Mapping[str, Any]) -> None:
    """Append one JSON line, with the time, to the owner's log of a stage; a line that is too long is cut and
    says so.
    """
    line = json.dumps({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **event}, default=str)
    if len(line) > LONGEST_LINE:
        line = json.dumps({"cut": line[: LONGEST_LINE // 2]})
    append_log(project, f"{stage}.jsonl", line.encode() + b"\n")


def append_log(project: Project, name: str, data: bytes) -> None:
    """Append to a file of the owner's log.

    A large one makes place for a new one; the one before it is kept, no more.
    """
    project.log.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = project.log / name
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    try:
        os.write(descriptor, data)
        if os.fstat(descriptor).st_size > LARGEST_LOG:
            os.replace(path, path.with_name(f"{name}.1"))
    finally:
        os.close(descriptor)


def canary(project: Project) -> Path:
    """A private file that a confined stage tries to read on every run; if it can, the wall is down."""
    path = project.folder / "canary"
    if not path.exists():
        write_private(path, b"If a stage can read this, the wall is down.\n")
    return path


def newest_policy(place: Project) -> int:
    """The serial of the last list of admitted keys that was signed here; 0 where none was."""
    try:
        return int((place.folder / "policy").read_text())
    except (FileNotFoundError, ValueError):
        return 0


def note_policy(place: Project, serial: int) -> None:
    """Remember it, so that an older list does not pass for the newest."""
    write_private(place.folder / "policy", str(serial).encode())
