"""Three books that must agree before anything is spent: the ledger, the signed receipts, and the archive of
releases.

A ledger that was put back from a backup is right by itself, and would spend again what it has forgotten. But
every signed receipt (in the workspace, in any commit, in AIRLOCK_HOME) holds the head of its time, the archive
holds every release that was made, and heads are written down beside the ledger and elsewhere (run/witness.py).
What one of them knows, the ledger must know.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airlock.errors import LedgerError, LedgerMoved
from airlock.evidence import policy, receipts
from airlock.evidence.receipts import Receipt
from airlock.ledger import Ledger, chain
from airlock.owner import keys
from airlock.owner.home import Project
from airlock.run import git, leftovers, witness

LABELS = {False: "real", True: "scratch"}
HINT = "run `airlock budget verify`, then `airlock budget recover`, which charges again what was forgotten"


@dataclass(frozen=True)
class Books:
    """The ledgers as they stand.

    Attributes:
        ledgers: by whether they are scratch; those that can be read.
        errors: why another one cannot.
        heads: the place of every head, by whether the ledger is scratch.
        releases: every id that was ever reserved.
        settled: every id of which the bytes are known, or that was given up.
        reserved: every id that is reserved and waits for that.
    """

    ledgers: Mapping[bool, Ledger]
    errors: Mapping[bool, str]
    heads: Mapping[bool, Mapping[str, int]]
    releases: frozenset[str]
    settled: frozenset[str]
    reserved: frozenset[str]

    def know(self, body: Mapping[str, Any]) -> bool:
        """Whether all that a receipt says about ledgers is so; then it does not matter who signed it."""
        told = body.get("ledger")
        if told and self.heads.get(bool(told["scratch"]), {}).get(told["head"]) != told["sequence"]:
            return False
        return all(str(release["id"]) in self.releases for release in body.get("releases", []))


@dataclass(frozen=True)
class Witnesses:
    """What bears witness to the ledgers: heads by whether the ledger is scratch, receipts that tell what a
    ledger does not know, archived releases, and what a witness elsewhere says was made.
    """

    heads: Mapping[bool, list[tuple[int, str]]]
    receipts: tuple[Receipt, ...]
    archived: tuple[str, ...]
    made: tuple[Mapping[str, Any], ...] = ()


def open_ledger(project: Project, *, public: bool) -> Ledger:
    """The population's ledger: the real one, or the scratch ledger of public data."""
    return Ledger.open(project.scratch_url if public else project.ledger_url, create=False)


def open_books(project: Project) -> Books:
    """Both ledgers, each of them verified as a whole.

    Raises:
        LedgerMoved: one of them is kept elsewhere now, and nothing can be said without it.
    """
    ledgers, errors = dict[bool, Ledger](), dict[bool, str]()
    heads, releases, settled = dict[bool, dict[str, int]](), set[str](), set[str]()
    reserved = set[str]()
    for scratch in LABELS:
        try:
            ledger = open_ledger(project, public=scratch)
            entries = ledger.history()
        except LedgerMoved:
            raise
        except LedgerError as error:
            errors[scratch] = str(error)
            continue
        ledgers[scratch] = ledger
        heads[scratch] = {entry.hash: entry.sequence for entry in entries}
        made = ("reserve", "disclosure", "night")
        releases |= {entry.release_id for entry in entries if entry.kind in made}
        settled |= {entry.release_id for entry in entries if entry.kind in ("commit", "lost")}
        last = {entry.release_id: entry.kind for entry in entries if entry.release_id}
        reserved |= {one for one, kind in last.items() if kind not in ("return", "commit", "lost")}
    return Books(
        ledgers, errors, heads, frozenset(releases), frozenset(settled), frozenset(reserved - settled)
    )


def archived_releases(project: Project) -> tuple[str, ...]:
    """What the archive holds. Listed before the ledgers are read: whatever is in it then was reserved before that,
    also if another process is making releases meanwhile.
    """
    folders = project.archive.glob("[0-9a-f]*")
    return tuple(sorted(path.name for path in folders if len(path.name) == 64 and path.is_dir()))


def gather(project: Project, workspace: Path, books: Books, archived: tuple[str, ...]) -> Witnesses:
    """Everything that is at hand and says more than the ledgers. Of that, only receipts with a right
    signature are believed.
    """
    believed = tuple(receipt for receipt in _receipts(project, workspace, books) if not receipt.problem)
    bodies = [receipt.body["ledger"] for receipt in believed if receipt.body.get("ledger")]
    heads: dict[bool, list[tuple[int, str]]] = {False: [], True: []}
    noted = tuple(witness.noted(project))
    for body in (*bodies, *noted):
        heads[bool(body["scratch"])].append((int(body["sequence"]), str(body["head"])))
    return Witnesses(heads, believed, archived, tuple(line["made"] for line in noted if line.get("made")))


def problems(project: Project, workspace: Path, *, needed: Iterable[bool] = ()) -> list[str]:
    """Where the books do not agree, one line each.

    Args:
        needed: kinds of ledgers (scratch or not) that must exist although no witness names them.
    """
    archived = archived_releases(project)
    books, found = open_books(project), list[str]()
    seen = gather(project, workspace, books, archived)
    for scratch, label in LABELS.items():
        heads = seen.heads[scratch]
        if scratch in books.ledgers:
            lines = (*_forks(heads, books, scratch), *books.ledgers[scratch].verify(heads))
            found += [f"{label} ledger: {line}" for line in lines]
        elif heads or scratch in needed:
            found += _unreadable(project, scratch, heads) or [books.errors[scratch]]
    found += [
        f"release {one[:12]} is in the archive, and no ledger knows it: it was put back from before"
        for one in seen.archived
        if one not in books.releases
    ]
    return list(dict.fromkeys(found))


def _forks(heads: Iterable[tuple[int, str]], books: Books, scratch: bool) -> list[str]:
    """Places where a witness names another head than the chain has, or another witness."""
    accepted = chain.accepted_heads(books.ledgers[scratch].history())
    places = {sequence: head for head, sequence in books.heads[scratch].items()}
    told = [(sequence, head) for sequence, head in heads if head not in accepted]
    return chain.forks([*told, *((sequence, places[sequence]) for sequence, _ in told if sequence in places)])


def _unreadable(project: Project, scratch: bool, heads: list[tuple[int, str]]) -> list[str]:
    """What is wrong with a ledger that is there and cannot be read."""
    try:
        found = open_ledger(project, public=scratch).verify(heads)
    except LedgerError:
        return []
    return [f"{LABELS[scratch]} ledger: {line}" for line in found]


def require(project: Project, workspace: Path) -> None:
    """Refuse to spend from books that do not agree. Half copies that killed runs left in the archive are
    swept on the way.

    Raises:
        LedgerError: with the first disagreement and the way out.
    """
    leftovers.sweep_folder(project.archive)
    if found := problems(project, workspace):
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        raise LedgerError(f"{found[0]}{more}: nothing is spent; {HINT}")


@contextmanager
def agreed(project: Project, workspace: Path, ledger: Ledger) -> Iterator[Ledger]:
    """A ledger that the owner writes to by hand (a cap, a settled reservation): its books must agree before, and its
    head is written down after. What an older one has not seen would otherwise be decided as if nobody had.

    Raises:
        LedgerError: the books do not agree.
        KeysError: the receipts here are of another owner, whose ledgers are not here.
    """
    if keys.exist(project):
        receipts.pin(workspace, keys.signer(project).public_key, owner=True)
    require(project, workspace)
    yield ledger
    witness.note(project, ledger)


def _receipts(project: Project, workspace: Path, books: Books) -> Iterator[Receipt]:
    """Of the working tree, of git where they are gone from it, and of AIRLOCK_HOME.

    Thousands of them say only what the ledgers know: those are neither verified nor returned.
    """
    signers, present = policy.of_workspace(workspace), set[str]()
    for path, text in (*receipts.files(workspace), *_committed(workspace)):
        present.add(path)
        if not _known(text, books):
            yield from receipts.read([(path, text)], signers)
    if keys.exist(project):
        own = replace(signers, owner=keys.signer(project).public_key.hex())
        for file in sorted(project.receipts.glob("*/*.json")):
            path = f"{receipts.FOLDER}/{file.parent.name}/{file.name}"
            if path not in present and not _known(text := file.read_text(), books):
                yield from receipts.read([(path, text)], own)


def _known(text: str, books: Books) -> bool:
    """Whether a receipt, believed or not, says nothing about ledgers that they do not say themselves."""
    try:
        return books.know(json.loads(text)["body"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _committed(workspace: Path) -> Iterator[tuple[str, str]]:
    """Receipts that are gone from the working tree, from all commits that git has here: also one that a later commit
    removed.
    """
    asked = ("log", "--all", "--no-renames", "--diff-filter=A", "--raw", "--no-abbrev", "-z", "--format=")
    listed = (git.ask(workspace, *asked, "--", receipts.FOLDER) or b"").split(b"\0")
    # Each is ":mode mode blob blob A" and then its path.
    added = {
        os.fsdecode(path): words.split()[3] for words, path in zip(listed[::2], listed[1::2], strict=False)
    }
    gone = {
        path: blob
        for path, blob in added.items()
        if path.endswith(".json") and not (workspace / path).exists()
    }
    answer = git.ask(workspace, "cat-file", "--batch", given=b"\n".join(gone.values())) if gone else b""
    for path in gone:
        first, _, answer = (answer or b"").partition(b"\n")
        if len(words := first.split()) == 3:  # a partial clone may not have it
            size = int(words[2])
            yield path, answer[:size].decode(errors="replace")
            answer = answer[size + 1 :]
