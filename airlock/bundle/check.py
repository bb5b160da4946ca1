"""What can be checked without running anything: receipts, boundary, hashes, ledger, guarantees, attestations,
crate.

The same checks are made before a bundle is written: one that would not verify is never made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from airlock.bundle import ATTESTATIONS, CRATE, attestations, ledgers
from airlock.bundle.contents import Contents
from airlock.evidence import checker, reader
from airlock.evidence.receipts import Receipt
from airlock.files import parse_json
from airlock.inside import manifest
from airlock.inside.digests import canonical_json
from airlock.owner.home import IDENTITY
from airlock.workspaces import lock

Check = Callable[[Contents], Iterable[str]]


def boundary(contents: Contents) -> Iterator[str]:
    """The audit of the bundled ledgers and bytes, and what no open stage may have had."""
    for path in contents.tree.files(""):
        if path.endswith((".yaml", ".yml", ".lock")):
            reader.check_text(contents.tree.text(path) or "", path)
    yield from checker.problems(contents.evidence)
    yield from _locked(contents)
    if not contents.lock:
        yield "dvc.lock names no stage that was run: run `dvc repro`, commit, and bundle again"
    for name, receipt in contents.witnesses.items():
        if receipt.body["zone"] == "open" and any(receipt.body["could_read"].values()):
            yield f"open stage '{name}' could read records (receipt {receipt.path})"


def _locked(contents: Contents) -> Iterator[str]:
    """The tool's code is what the stages were locked to, where a workspace had no copy of its own."""
    for name in contents.witnesses:
        for path, digest in lock.files(contents.tree.text(lock.place(name)) or "").items():
            if contents.evidence.digest(path) != digest:
                yield (
                    f"stage '{name}' ran with another '{path}' than the one here: install the Airlock that "
                    f"{lock.SHIPPED} names, or run `airlock upgrade` and `dvc repro`"
                )


def complete(contents: Contents) -> Iterator[str]:
    """Everything that a stage made is bundled but sealed records, and everything bundled as data was made by
    a stage.
    """
    makers = contents.evidence.makers
    for out, receipt in makers.items():
        if contents.graph.label(out) != "sealed" and not (contents.root / out).exists():
            yield f"stage '{receipt.stage}' made '{out}', which is not in the bundle"
    sources = [dep for stage in contents.graph for dep in stage.deps if not contents.graph.makers(dep)]
    for path in contents.tree.files("data"):
        known = (*makers, *sources, IDENTITY)
        if not any(path == place or path.startswith(place + "/") for place in known):
            yield f"'{path}' is in the bundle, and no signed receipt says what made it"


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
    owner = contents.evidence.policy.owner
    for name, receipt in contents.witnesses.items():
        path = attestation_path(receipt)
        text = contents.tree.text(path)
        if text is None:
            yield f"stage '{name}' has no attestation {path}"
        elif wrong := attestations.problem(text, attestations.statement(receipt, contents.root), owner):
            yield f"{path} {wrong}"


def attestation_path(receipt: Receipt) -> str:
    """Where the attestation of a receipt's stage is."""
    return f"{ATTESTATIONS}/{receipt.stage}.dsse.json"


def crate(contents: Contents) -> Iterator[str]:
    """The RO-Crate's list of files is the bundle's."""
    try:
        graph = parse_json(contents.tree.text(CRATE) or "")["@graph"]
        root = next(entity for entity in graph if entity["@id"] == "./")
        parts = {part["@id"] for part in root["hasPart"]}
    except (ValueError, KeyError, TypeError, StopIteration):
        yield f"{CRATE} does not describe a crate"
        return
    for part in sorted(parts):
        if "://" not in part and not (contents.root / part).exists():
            yield f"{CRATE} names {part}, which is not in the bundle"


CHECKS: dict[str, tuple[Check, str]] = {
    "boundary": (
        boundary,
        "dvc.yaml, dvc.lock, receipts, code and bytes agree; no open stage could read records",
    ),
    "outs": (complete, "all that was made is here, and nothing else: each out has a signed receipt"),
    "releases": (releases, "release.json and its files are what the runner signed"),
    "ledger": (ledgers.ledger_problems, "the chain is whole up to a signed head and within its caps"),
    "guarantees": (ledgers.guarantee_problems, "every epsilon follows from its events"),
    "attestations": (attested, "in-toto, one a stage, signed by the owner"),
    "crate": (crate, "the RO-Crate describes what is here"),
}
