"""What can be checked without running anything: receipts, boundary, hashes, ledger, guarantees, attestations, crate.

The same checks are made before a bundle is written: one that would not verify is never made.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator

from airlock.bundle import ATTESTATIONS, CRATE, attestations, books
from airlock.bundle.contents import Contents
from airlock.evidence.audit import audit_tree
from airlock.evidence.receipts import Receipt
from airlock.inside import manifest
from airlock.inside.digests import canonical_json, sha256_path

Check = Callable[[Contents], Iterable[str]]


def boundary(contents: Contents) -> Iterator[str]:
    """The audit of the bundled dvc.yaml, dvc.lock and receipts, and what no open stage may have had."""
    yield from audit_tree(contents.tree).problems
    if not contents.lock:
        yield "dvc.lock names no stage that was run: run `dvc repro`, commit, and bundle again"
    for name, receipt in contents.witnesses.items():
        if receipt.body["zone"] == "open" and any(receipt.body["could_read"].values()):
            yield f"open stage '{name}' could read records (receipt {receipt.path})"


def hashes(contents: Contents) -> Iterator[str]:
    """The chain of receipts: what each stage used is what another made or what is bundled; what it made is bundled."""
    makers = {out: receipt for receipt in contents.witnesses.values() for out in receipt.body["outs"]}
    for name, receipt in contents.witnesses.items():
        for dep, found in receipt.body["deps"].items():
            made = makers[dep].body["outs"][dep] if dep in makers else None
            if made and made["sha256"] != found["sha256"]:
                yield f"stage '{name}' used another '{dep}' than stage '{makers[dep].stage}' made: run `dvc repro` and commit"
            elif not made:
                yield from _bundled(contents, name, "used", dep, found["sha256"])
        for out, found in receipt.body["outs"].items():
            if contents.graph.label(out) != "sealed":
                yield from _bundled(contents, name, "made", out, found["sha256"])


def _bundled(contents: Contents, stage: str, verb: str, path: str, digest: str) -> Iterator[str]:
    place = contents.root / path
    if not place.exists():
        yield f"stage '{stage}' {verb} '{path}', which is not in the bundle"
    elif sha256_path(place) != digest:
        yield f"stage '{stage}' {verb} another '{path}' than the bundled one: commit what was used, or run `dvc repro`, and bundle again"


def releases(contents: Contents) -> Iterator[str]:
    """Each release.json and its files, against what the runner signed."""
    signed = {
        entry["out"]: entry for receipt in contents.witnesses.values() for entry in receipt.body["releases"]
    }
    for out, made in contents.releases.items():
        entry = signed.get(out)
        if entry is None or (entry["id"], entry["manifest"]) != (
            made.release_id,
            manifest.digest(contents.root / out),
        ):
            yield f"{out}: no receipt is signed for this release.json"
        elif canonical_json(entry["proven"]) != canonical_json(made.proven.to_json()):
            yield f"{out}: its receipt states another guarantee than release.json"


def attested(contents: Contents) -> Iterator[str]:
    """One attestation a stage, signed by the owner's key, that says what the receipt says."""
    pinned = contents.tree.text("receipts/runner.pub") or ""
    for name, receipt in contents.witnesses.items():
        path = attestation_path(receipt)
        text = contents.tree.text(path)
        if text is None:
            yield f"stage '{name}' has no attestation {path}"
        elif wrong := attestations.problem(
            text, attestations.statement(receipt, contents.root), pinned.split()[0]
        ):
            yield f"{path} {wrong}"


def attestation_path(receipt: Receipt) -> str:
    """Where the attestation of a receipt's stage is."""
    return f"{ATTESTATIONS}/{receipt.stage}.dsse.json"


def crate(contents: Contents) -> Iterator[str]:
    """The RO-Crate's list of files is the bundle's."""
    try:
        graph = json.loads(contents.tree.text(CRATE) or "")["@graph"]
        root = next(entity for entity in graph if entity["@id"] == "./")
        parts = {part["@id"] for part in root["hasPart"]}
    except (ValueError, KeyError, TypeError, StopIteration):
        yield f"{CRATE} does not describe a crate"
        return
    for part in sorted(parts):
        if "://" not in part and not (contents.root / part).exists():
            yield f"{CRATE} names {part}, which is not in the bundle"


CHECKS: dict[str, tuple[Check, str]] = {
    "boundary": (boundary, "dvc.yaml, dvc.lock and signed receipts agree; no open stage could read records"),
    "receipt chain": (hashes, "what each stage used and made is what the runner signed"),
    "releases": (releases, "release.json and its files are what the runner signed"),
    "ledger": (books.ledger_problems, "the chain is whole up to a signed head and within its caps"),
    "guarantees": (books.guarantee_problems, "every epsilon follows from its events"),
    "attestations": (attested, "in-toto, one a stage, signed by the owner"),
    "crate": (crate, "the RO-Crate describes what is here"),
}
