"""`airlock bundle`: from one commit, what a reviewer needs and nothing that they must not have.

What goes in is listed here by name; keys, sealed files, raw data and the owner's log are in no list.
"""

from __future__ import annotations

import fnmatch
import json
import tempfile
from collections.abc import Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from airlock import ledger as ledgers
from airlock.bundle import CRATE, LEDGER, README, RUNS, attestations, check, container, crate, extract, index
from airlock.bundle.contents import NAMES, Contents, made_in
from airlock.bundle.sources import Cache, resolve, write_blobs, write_tool
from airlock.errors import BundleError, InputError, KeysError, LedgerError
from airlock.evidence import audit, checker, receipts
from airlock.evidence.revisions import Commit, Tree, graph_of, pipelines
from airlock.owner.home import Project, project
from airlock.owner.keys import Keyring
from airlock.run import reconcile
from airlock.run.code import ENTRY, INSIDE_FILES, MODULES, TOOL
from airlock.run.reconcile import open_ledger

# Code, parameters, environment lock, licence, and what is known to be wrong with the papers.
TRACKED_PATTERNS = (
    "stages/*",
    *(f"airlock/{name}" if name.endswith(".py") else f"airlock/{name}/*" for name in INSIDE_FILES),
    "params.yaml",
    "data/project.json",
    "pyproject.toml",
    "constraints.txt",
    "LICENSE",
    "CITATION.cff",
    "docs/errata/*",
    "docs/proofs/*",
    "docs/mechanism.md",
    "docs/privacy.md",
    "docs/submissions.md",
    receipts.OWNER_KEY,
    receipts.POLICY,
)


def make(workspace: Path, output: Path, *, rev: str = "HEAD") -> dict[str, Any]:
    """Write the bundle of a commit.

    Returns:
        The signed facts, without the list of files.

    Raises:
        InputError: the commit or something it made is not here.
        KeysError: this is not the owner's machine.
        BundleError: the bundle would not verify.
    """
    place = project(workspace)
    keyring = Keyring.load(place)
    reconcile.require(place, workspace)
    commit, when = resolve(workspace, rev)
    with tempfile.TemporaryDirectory(prefix="airlock-bundle-") as temporary:
        root = Path(temporary)
        _lay_out(workspace, Commit(workspace, commit), root)
        contents = Contents(root)
        _check_owner(contents, keyring, commit)
        populations = sorted({str(_document(root, out)["population"]) for out in contents.releases})
        facts = {
            "project": place.id,
            "commit": commit,
            "committed": when,
            "airlock": metadata.version("airlock-pipeline"),
            "populations": populations,
            "entry": ENTRY,
            "modules": MODULES,
        }
        _write_ledgers(contents, place, populations)
        for receipt in contents.witnesses.values():
            target = root / check.attestation_path(receipt)
            target.parent.mkdir(exist_ok=True)
            target.write_text(attestations.sign(attestations.statement(receipt, root), keyring.signer))
        (root / README).write_text(Path(__file__).with_name("readme.md").read_text().format(**facts))
        described = crate.describe(Contents(root), {**facts, "key": keyring.signer.public_key.hex()})
        (root / CRATE).write_text(json.dumps(described, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        index.write(root, facts, keyring.signer)
        _check(Contents(root), commit)
        output.parent.mkdir(parents=True, exist_ok=True)
        container.pack(root, output)
    return facts


def make_collection(workspace: Path, output: Path, revs: Sequence[str]) -> dict[str, Any]:
    """Write the bundles of several commits into one file, such as the rows of a paper's table.

    Returns the signed facts.
    """
    place = project(workspace)
    signer = Keyring.load(place).signer
    with tempfile.TemporaryDirectory(prefix="airlock-bundle-") as temporary:
        root = Path(temporary)
        made: list[dict[str, Any]] = []
        for number, rev in enumerate(revs, start=1):
            commit, _ = resolve(workspace, rev)
            if any(commit == one["commit"] for one in made):
                raise InputError(
                    f"--rev {rev} is commit {commit[:12]}, which is named already: name each once"
                )
            made.append(make(workspace, root / RUNS / f"{number:02}-{commit[:12]}.zip", rev=commit))
        facts = {
            "project": place.id,
            "commits": [one["commit"] for one in made],
            "committed": max(one["committed"] for one in made),
            "airlock": made[0]["airlock"],
        }
        (root / README).write_text(Path(__file__).with_name("collection.md").read_text().format(**facts))
        (root / CRATE).write_text(
            json.dumps(crate.describe_collection(root, facts), indent=1, sort_keys=True) + "\n"
        )
        index.write(root, facts, signer)
        container.pack(root, output)
    return facts


def _lay_out(workspace: Path, tree: Tree, root: Path) -> None:
    """Files of the commit, and the outs that it names in the DVC cache."""
    answer = audit.audit_tree(tree)
    if answer.problems:
        raise BundleError(f"the boundary of commit {tree.name[:12]} does not hold: {answer.problems[0]}")
    write_blobs(workspace, tree.name, set(_tracked(tree)), root)
    if not (root / TOOL.name).exists():  # a workspace of `airlock new`, which has the tool's lock instead
        write_tool(root)
    graph, cache = graph_of(tree), Cache(workspace)
    for name, locked in made_in(tree, graph).items():
        for item in locked.get("outs", []):
            if (
                graph.label(item["path"]) in ("released", "open")
                and graph.stage(name).remotes.get(item["path"]) == "released"
            ):
                cache.write(item, root / item["path"], remote="released")


def _tracked(tree: Tree) -> Iterator[str]:
    files = tree.files("")
    yield from (path for path in files if any(fnmatch.fnmatch(path, pattern) for pattern in TRACKED_PATTERNS))
    for path in pipelines(tree):
        yield path
        yield from [lock for lock in (path.removesuffix("yaml") + "lock",) if lock in files]
    evidence = checker.Evidence(tree)
    graph = evidence.graph
    for name in made_in(tree, graph):
        yield from (receipt.path for receipt in evidence.matching(name))
        sources = [dep for dep in graph.stage(name).deps if not graph.makers(dep)]
        yield from (path for path in files for dep in sources if path == dep or path.startswith(dep + "/"))


def _check_owner(contents: Contents, keyring: Keyring, commit: str) -> None:
    if not contents.evidence.policy.owner:
        raise InputError(
            f"commit {commit[:12]} has no receipts: run `dvc repro`, commit what it made (git add -A && git commit -m "
            "Release), and bundle that commit"
        )
    if contents.evidence.policy.owner != keyring.signer.public_key.hex():
        raise KeysError(
            "only the owner can make a bundle: the keys here are not the first that receipts/runner.pub names"
        )


def _document(root: Path, out: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((root / out / "release.json").read_text())
    return document


def _write_ledgers(contents: Contents, place: Project, populations: list[str]) -> None:
    """Up to the newest head in a receipt of this commit: what came later belongs to another bundle."""
    heads: dict[bool, int] = {}
    for receipt in contents.witnesses.values():
        if entry := receipt.body.get("ledger"):
            scratch = bool(entry["scratch"])
            heads[scratch] = max(heads.get(scratch, 0), int(entry["sequence"]))
    for scratch, head in heads.items():
        ledger: ledgers.Ledger = open_ledger(place, public=scratch)
        if wrong := ledger.verify():
            raise LedgerError(
                f"the ledger was changed: {wrong[0]}; run `airlock budget verify` and restore a backup"
            )
        extract.write(
            extract.take(ledger.history(), scratch=scratch, head=head, populations=populations),
            contents.root / LEDGER / NAMES[scratch],
        )


def _check(contents: Contents, commit: str) -> None:
    for name, (problems, _) in check.CHECKS.items():
        for problem in problems(contents):
            raise BundleError(f"commit {commit[:12]} cannot be bundled ({name}): {problem}")
