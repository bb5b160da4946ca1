"""One checker of the evidence, for `airlock audit`, `airlock bundle` and `airlock verify`.

Five books must agree: what dvc.yaml declares, what dvc.lock says was made, what the runner signed (receipts),
the code and sources of the same state, and the bytes that are there. A gap in one of them is "cannot tell",
which is a problem like any other: silence is never a yes. (The sixth book, the ledger, is compared where it
is: on the owner's machine or in a bundle.)
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from airlock.errors import BoundaryError
from airlock.evidence import policy, reader, receipts, zones
from airlock.evidence.policy import Policy
from airlock.evidence.receipt_shape import is_whole
from airlock.evidence.receipts import Receipt
from airlock.evidence.revisions import Tree, graph_of, pipelines, unfollowed
from airlock.wall.layers import MINIMUM

AGAIN = "run `dvc repro` and commit"
EVALUATION = ("evaluate-private", "judged")
"""The stages that `airlock evaluate` runs."""
NOT_WHOLE = "does not say all that a receipt says: it was not made by the runner"
LOCKED = frozenset({"path", "hash", "md5", "size", "nfiles", "isexec"})
"""What DVC notes of a dep or an out. It obeys more than that in place of the MD5 that receipts have: names of files in
a folder, which may lead anywhere, versions in a cloud, hashes of another kind.
"""


@dataclass(frozen=True)
class Evidence:
    """The books of one state of the project."""

    tree: Tree

    @cached_property
    def graph(self) -> zones.Graph:
        """What is declared."""
        return graph_of(self.tree)

    @cached_property
    def lock(self) -> Mapping[str, Mapping[str, Any]]:
        """What every dvc.lock says was made, by stage."""
        return lock_of(self.tree)

    @cached_property
    def policy(self) -> Policy:
        """Who may sign."""
        return policy.read(self.tree.text(policy.OWNER_KEY), self.tree.text(policy.POLICY))

    @cached_property
    def receipts(self) -> list[Receipt]:
        """What was signed, believable or not."""
        files = [
            path
            for path in self.tree.files(receipts.FOLDER)
            if path.count("/") == 2 and path.endswith(".json")
        ]
        found = receipts.read([(path, self.tree.text(path) or "") for path in files], self.policy)
        return [
            one if one.problem or is_whole(one.body) else replace(one, problem=NOT_WHOLE) for one in found
        ]

    @cached_property
    def _digests(self) -> dict[str, str | None]:
        return {}

    def digest(self, path: str) -> str | None:
        """SHA-256 of what is there, taken once; None where nothing is."""
        if path not in self._digests:
            self._digests[path] = self.tree.digest(path)
        return self._digests[path]

    def matching(self, stage: str) -> list[Receipt]:
        """Believable receipts of a stage with the very hashes that dvc.lock names, oldest first."""
        found = matching(stage, self.lock.get(stage), self.receipts)
        return sorted(found, key=lambda one: (str(one.body["when"]), one.path))

    @cached_property
    def witnesses(self) -> dict[str, Receipt]:
        """For each stage that was run, the newest of those."""
        found = {stage.name: self.matching(stage.name) for stage in self.graph}
        return {name: ones[-1] for name, ones in found.items() if ones}

    @cached_property
    def makers(self) -> dict[str, Receipt]:
        """The witness of every out."""
        return {out: receipt for receipt in self.witnesses.values() for out in receipt.body["outs"]}


def problems(evidence: Evidence) -> Iterator[str]:
    """Everything that does not agree, one line each."""
    yield from unfollowed(evidence.tree)
    yield from zones.problems(evidence.graph)
    yield from _compiled(evidence.tree)
    if evidence.policy.problem:
        yield evidence.policy.problem
    for receipt in evidence.receipts:
        if receipt.problem:
            yield f"receipt {receipt.path} {receipt.problem}"
    for name in evidence.lock.keys() - evidence.graph.stages.keys():
        yield f"dvc.lock has a stage '{name}' that dvc.yaml does not have: remove its entry from dvc.lock"
    for stage in evidence.graph:
        if stage.name not in evidence.lock:
            yield from _not_locked(stage, evidence)
            continue
        yield from _signed(stage, evidence)
        if witness := evidence.witnesses.get(stage.name):
            yield from _used(witness, evidence)
            yield from _made(witness, evidence)


def _compiled(tree: Tree) -> Iterator[str]:
    """Python may leave compiled files in a workspace; a commit or a
    bundle that has them hides code in them.
    """
    for folder in ("airlock", "stages") if tree.compiled else ():
        for path in tree.files(folder):
            if path.endswith((".pyc", ".pyo")):
                yield f"'{path}' is compiled code, which nobody can review: remove it"


def _not_locked(stage: zones.Stage, evidence: Evidence) -> Iterator[str]:
    """A stage that was never run leaves nothing behind: neither receipts nor outs."""
    traces = [receipt.path for receipt in evidence.receipts if receipt.stage == stage.name]
    traces += [f"'{out}'" for out in stage.outs if evidence.digest(out) is not None]
    if traces:
        yield (
            f"cannot tell how stage '{stage.name}' was run: dvc.lock has "
            f"no entry for it, but {traces[0]} is there; "
            f"restore dvc.lock from git, or {_again(stage)}"
        )


def _signed(stage: zones.Stage, evidence: Evidence) -> Iterator[str]:
    locked, found = evidence.lock[stage.name], evidence.matching(stage.name)
    if locked.get("cmd") != stage.command:
        yield (
            f"stage '{stage.name}' was made by another command than `{stage.command}`: run `dvc repro -f "
            f"{stage.address}`"
        )
    if not found:
        yield (
            f"stage '{stage.name}': no signed receipt has the hashes in "
            "dvc.lock: it was made outside the runner "
            f"(dvc commit, an edited dvc.lock or another command); run `dvc repro -f {stage.address}`"
        )
    for receipt in found:
        yield from _confined(stage, receipt)


def _confined(stage: zones.Stage, receipt: Receipt) -> Iterator[str]:
    body, again = receipt.body, f"run `dvc repro -f {stage.address}`"
    if body["zone"] != stage.zone:
        yield f"stage '{stage.name}' ran in zone {body['zone']} and dvc.yaml now says {stage.zone}: {again}"
    if not set(body["enforcement"]["layers"]) >= {str(layer) for layer in MINIMUM}:
        yield (
            f"stage '{stage.name}' ran without the minimum of layers (advisory): "
            f"set boundary.enforcement to auto and run it again"
        )
    if changed := body.get("changed"):
        yield f"cannot tell what stage '{stage.name}' used: '{changed[0]}' was changed while it ran; {again}"
    if stage.zone == "open" and body["did_read"]["records"] == "yes":
        yield f"open stage '{stage.name}' read records (receipt {receipt.path})"
    code = body.get("code") or {}
    if "module" in code and code["module"] != (stage.module or code["default"]):
        yield f"stage '{stage.name}' ran the module {code['module']} and dvc.yaml now says another: {again}"
    if differing := code.get("differs"):
        yield (
            f"stage '{stage.name}' ran with another '{differing[0]}' than the one here: install this "
            f"Airlock and {again}"
        )


def _again(stage: zones.Stage) -> str:
    """How a stage is made again: what stands in another file than the top one is not run by `dvc repro` alone."""
    if stage.name in EVALUATION:
        return "run `airlock evaluate` and commit"
    return AGAIN if stage.file == zones.TOP else f"run `dvc repro {stage.address}` and commit"


def _used(witness: Receipt, evidence: Evidence) -> Iterator[str]:
    """What a stage used is what another one made, or what lies here."""
    again = _again(evidence.graph.stage(witness.stage))
    for dep, found in witness.body["deps"].items():
        if dep in evidence.makers:
            maker = evidence.makers[dep]
            if maker.body["outs"][dep]["sha256"] != found["sha256"] and not _judged(witness, dep, evidence):
                yield f"stage '{witness.stage}' used another '{dep}' than stage '{maker.stage}' made: {again}"
            continue
        here = evidence.digest(dep)
        if here is None:
            yield f"cannot tell what stage '{witness.stage}' used: '{dep}' is not here; {again}"
        elif here != found["sha256"]:
            yield f"stage '{witness.stage}' used another '{dep}' than the one here: {again}"


def _judged(witness: Receipt, dep: str, evidence: Evidence) -> bool:
    """Whether a release stage used an earlier model that was signed then: a private evaluation stays true of
    it.
    """
    if evidence.graph.stage(witness.stage).zone != "release" or evidence.graph.label(dep) != "open":
        return False
    used = witness.body["deps"][dep]["sha256"]
    earlier = (receipt.body["outs"].get(dep) for receipt in evidence.receipts if not receipt.problem)
    return any(made is not None and made["sha256"] == used for made in earlier)


def _made(witness: Receipt, evidence: Evidence) -> Iterator[str]:
    """What is here of its outs is what a stage made; what is not here (sealed, or not pulled) cannot be used
    either.
    """
    for out, found in witness.body["outs"].items():
        if evidence.digest(out) not in (None, found["sha256"]):
            yield f"'{out}' is not what stage '{witness.stage}' made: run `dvc checkout --force {shlex.quote(out)}`"


def lock_of(tree: Tree) -> Mapping[str, Mapping[str, Any]]:
    """What every dvc.lock says was made, by stage.

    Raises:
        BoundaryError: it says more than is looked at here.
    """
    stages: dict[str, Mapping[str, Any]] = {}
    for path in pipelines(tree):
        lock = path.removesuffix("yaml") + "lock"
        text = tree.text(lock)
        found = reader.load(text, lock).get("stages") or {} if text else {}
        for name, locked in found.items() if isinstance(found, Mapping) else [("?", found)]:
            if not _is_followed(locked):
                raise BoundaryError(
                    f"{lock}: stage '{name}' has what is not followed, and DVC may obey it: a dep or an out has a "
                    "path, `hash: md5` and its MD5; restore it from git, or remove it and run `dvc repro`"
                )
        stages |= found
    return stages


def _is_followed(locked: Any) -> bool:
    if not isinstance(locked, Mapping):
        return False
    sections = [locked.get(section) or [] for section in ("deps", "outs")]
    return all(
        isinstance(items, list)
        and all(
            isinstance(item, Mapping)
            and item.keys() <= LOCKED
            and isinstance(item.get("path"), str)
            and item.get("hash") == "md5"
            for item in items
        )
        for items in sections
    )


def matching(stage: str, locked: Mapping[str, Any] | None, signed: list[Receipt]) -> list[Receipt]:
    """Believable receipts with the very hashes that dvc.lock names; a run-cache restore has an older one."""
    if locked is None:
        return []
    wanted = {
        section: {item["path"]: item.get("md5") for item in locked.get(section, [])}
        for section in ("deps", "outs")
    }
    return [
        receipt
        for receipt in signed
        if not receipt.problem
        and receipt.stage == stage
        and all(
            {path: hashes["md5"] for path, hashes in receipt.body[section].items()} == wanted[section]
            for section in wanted
        )
    ]
