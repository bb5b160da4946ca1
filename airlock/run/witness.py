"""Heads of the ledgers, written down beside them: in AIRLOCK_HOME after every entry, and in a file elsewhere for those
who name one (AIRLOCK_WITNESS).

A receipt holds the head of its time, but nobody signs a receipt for a cap, a retired population or a settled
reservation. The head that this home wrote down last finds a database that was put back from before one of those, or
that is another one altogether. The file elsewhere also finds a home that was put back as a whole; it only ever
grows, and the home remembers the line that it wrote last, so that a witness that was cut, or is not mounted, does not
pass for one that knows nothing. Before a release is published its line also says what was released, as a receipt
does: where every receipt is gone with the home, it can still be charged again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from airlock.errors import InputError, LedgerError
from airlock.files import parse_json
from airlock.ledger import Ledger, Release
from airlock.owner.home import Project, write_private

FOLDER = "heads"


def note(project: Project, ledger: Ledger, made: Release | None = None) -> None:
    """Write the ledger's head down. To a witness elsewhere it is only ever appended.

    Args:
        made: a release that is about to be published.

    Raises:
        LedgerError: if that cannot be done: a witness that misses heads is none.
    """
    stated = ledger.receipt()
    line = {"project": project.id, **{name: stated[name] for name in ("scratch", "sequence", "head")}}
    if (witness := place(project)) is not None:
        told = {"made": {"id": made.release_id, "manifest": made.manifest, **made.terms()}} if made else {}
        _append(witness, json.dumps(line | told, sort_keys=True))
        _remember(project, "witness", {**line, "place": str(witness)})
    _remember(project, "scratch" if stated["scratch"] else "real", line)


def place(project: Project) -> Path | None:
    """The file named by AIRLOCK_WITNESS: on another disk, append-only (chattr +a), or in a folder that is
    backed up apart.
    """
    name = os.environ.get("AIRLOCK_WITNESS")
    if not name:
        return None
    found = Path(name).expanduser().absolute()
    if found.resolve().is_relative_to(project.folder.resolve()):
        raise InputError(
            "AIRLOCK_WITNESS lies in AIRLOCK_HOME, and would be put back with it: choose another disk"
        )
    return found


def noted(project: Project) -> Iterator[Mapping[str, Any]]:
    """Every head that was written down of this project: `scratch`, `sequence`, `head`, and `made` where something was
    about to be published.

    Raises:
        LedgerError: the witness elsewhere was edited or cut.
    """
    for name in ("real", "scratch"):
        if found := _remembered(project, name):
            yield found
    if (witness := place(project)) is not None:
        yield from _read(project, witness)


def _read(project: Project, witness: Path) -> list[Mapping[str, Any]]:
    try:
        lines = witness.read_text(errors="replace").splitlines(keepends=True)
    except FileNotFoundError:
        lines = []
    found = [
        head
        for number in range(len(lines))
        if (head := _head(lines, number)) and head.get("project") == project.id
    ]
    last = _remembered(project, "witness")
    if last and last.get("place") == str(witness) and last["head"] not in {head["head"] for head in found}:
        raise LedgerError(
            "AIRLOCK_WITNESS lacks the head that was written to it last: mount or restore it (to begin a new "
            f"one all the same, remove {_place(project, 'witness')})"
        )
    return found


def _head(lines: Sequence[str], number: int) -> Mapping[str, Any] | None:
    try:
        found = parse_json(lines[number])
        str(found["project"]), int(found["sequence"]), str(found["head"]), bool(found["scratch"])
    except (ValueError, KeyError, TypeError, RecursionError):
        if _cut_off(lines, number):
            return None  # a loss of power: the ledger's entry was on disk before this was written
        raise LedgerError("AIRLOCK_WITNESS has a line that is no head: it was edited; restore it") from None
    head: Mapping[str, Any] = found
    return head


def _cut_off(lines: Sequence[str], number: int) -> bool:
    """Whether a line is the beginning of one that was being written: it has no end, or was closed later."""
    line = lines[number].strip("\n\0 ")
    return not line or (line.startswith("{") and not line.endswith("}"))


def _append(witness: Path, line: str) -> None:
    try:
        descriptor = os.open(witness, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # A line that a loss of power cut off is closed first.
            cut = witness.stat().st_size and not witness.read_bytes().endswith(b"\n")
            os.write(descriptor, ("\n" * bool(cut) + line + "\n").encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise LedgerError(
            f"the witness AIRLOCK_WITNESS cannot be written ({error.strerror}): mount it, or unset it"
        ) from None


def _remember(project: Project, name: str, line: Mapping[str, Any]) -> None:
    write_private(_place(project, name), json.dumps(line, sort_keys=True).encode())


def _remembered(project: Project, name: str) -> Mapping[str, Any] | None:
    """What this home wrote down last; nothing in a home of an older Airlock.

    Raises:
        LedgerError: it was edited.
    """
    try:
        found = parse_json(_place(project, name).read_text())
        wanted = {
            "scratch": bool(found["scratch"]),
            "sequence": int(found["sequence"]),
            "head": str(found["head"]),
        }
        return wanted | {"place": str(found.get("place", ""))}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise LedgerError(
            f"{_place(project, name)} is not what was written: restore AIRLOCK_HOME from a backup"
        ) from None


def _place(project: Project, name: str) -> Path:
    return project.folder / FOLDER / f"{name}.json"
