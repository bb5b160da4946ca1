"""Run the stages of a bundle again: the open ones anywhere, the release stages where keys and sealed records
are.

The bundle's own code runs behind the wall only, like any stage's. Outside of it everything is done by the
installed Airlock.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from airlock.bundle import comparison
from airlock.bundle.contents import Contents
from airlock.bundle.sources import Cache, write_tool
from airlock.errors import BundleError, InputError
from airlock.evidence.audit import audit_tree
from airlock.evidence.evaluation import private_evaluation
from airlock.evidence.page import page_facts
from airlock.ledger.accounts import read_book
from airlock.ledger.quotes import spent
from airlock.owner.checks import budget_of
from airlock.owner.home import Project
from airlock.params import BoundaryParams
from airlock.run.code import MODULES, STAGES, TOOL, Code
from airlock.run.machine import platform_facts
from airlock.run.recompute import recompute
from airlock.run.request import request
from airlock.run.stage import make_again

BIT_IDENTICAL, WITHIN_TOLERANCE, DIFFERENT = "bit-identical", "within tolerance", "different"
# Bundles made before `airlock` and `stages` were two packages.
FIRST_ENTRY = "stages.boundary.enter"
FIRST_MODULES = {**MODULES, "release": "stages.release.release", "report": "stages.open.report"}
NOTHING_RELEASED = "it released nothing"
PAGE = "identical but for budget and boundary of its time"
FIGURES = "identical but for figures, and for budget and boundary of its time"
WALL = BoundaryParams(enforcement="auto")
"""The verifier decides what holds a bundle's code: never less than the minimum, whatever its params.yaml
says.
"""
MOST_THREADS = 1024


@dataclass(frozen=True)
class Agreement:
    """How a stage's second run compares with the first one.

    Attributes:
        stage: its name.
        verdict: how close the outs are, the farthest one counting.
        alike: the machine is of the kind that the first run was on.
        out: the out that is farthest off, where one is.
        machine: what the receipt says of its machine that is not so here.
    """

    stage: str
    verdict: str
    alike: bool
    out: str = ""
    machine: str = ""

    @property
    def problem(self) -> str:
        """Why this is not agreement, or nothing."""
        if self.verdict == DIFFERENT or (self.alike and self.verdict == WITHIN_TOLERANCE):
            machine = "the same kind of machine" if self.alike else "another kind of machine"
            return f"stage '{self.stage}' run again on {machine} made another '{self.out}' ({self.verdict})"
        return ""


def code_of(contents: Contents, facts: Mapping[str, Any]) -> Code:
    """The bundle's own code. bundle.json says where it starts; those of the first format did not need to.

    Raises:
        BundleError: what it names is no module.
    """
    entry, modules = str(facts.get("entry", FIRST_ENTRY)), facts.get("modules", FIRST_MODULES)
    if not isinstance(modules, Mapping) or not all(
        re.fullmatch(r"(airlock|stages)(\.[a-z_]+)+", str(name)) for name in (entry, *modules.values())
    ):
        raise BundleError("bundle.json names code that is not in the bundle")
    own = tuple(name for name in (TOOL.name, STAGES) if (contents.root / name).is_dir())
    return Code(entry, (contents.root,), (), own, dict(modules))


def use_own_code(contents: Contents, workspace: Path) -> None:
    """Put the installed tool's code and the stages of `workspace` in place of the bundle's.

    Raises:
        InputError: there are no stages there.
    """
    if not (workspace / STAGES).is_dir():
        raise InputError(
            f"there is no folder '{STAGES}' here: run from an Airlock workspace, or leave --own-code out"
        )
    for name in (STAGES, TOOL.name):
        shutil.rmtree(contents.root / name, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(workspace / STAGES, contents.root / STAGES, ignore=ignored)
    write_tool(contents.root)


def rerun(contents: Contents, code: Code, aside: Path) -> Iterator[Agreement]:
    """Run every open stage again from the releases, each on what the ones before it made now.

    Args:
        contents: an unpacked and checked bundle; its open outs are replaced.
        code: what runs behind the wall.
        aside: an empty folder for the bundled outs, and for a home of its own.
    """
    judged = private_evaluation(contents.root)
    page = page_facts(audit_tree(contents.tree).stages, contents.graph, _budget(contents), judged)
    home = Project("verify", aside / "home")
    home.folder.mkdir(mode=0o700, parents=True)
    chosen = contents.stages("open")
    platforms = {stage.name: contents.witnesses[stage.name].body.get("platform") for stage in chosen}
    for stage in chosen:
        for out in stage.outs:
            (aside / out).parent.mkdir(parents=True, exist_ok=True)
            shutil.move(contents.root / out, aside / out)
    for stage in chosen:
        with _threads(platforms[stage.name]):
            asked = request(stage.name, workspace=contents.root, home=home, code=code, boundary=WALL)
            make_again(asked, page if stage.name == "report" else {})
            machine = _machine(platforms[stage.name], platform_facts())
        found = _compare(stage.name, stage.outs, contents.root, aside, not machine)
        yield replace(found, machine=machine)


def _budget(contents: Contents) -> dict[str, Any] | None:
    """The population's total as the bundled ledger has it."""
    for scratch, extract in contents.extracts.items():
        book = read_book(extract.visible)
        for population in book.populations:
            return budget_of(spent(book.account(population)), scratch=scratch)
    return None


def _machine(stated: Mapping[str, Any] | None, here: Mapping[str, Any]) -> str:
    """What a receipt states of its machine, where this one is another."""
    if not stated:
        return "no machine is stated"
    return ", ".join(f"{name} {value}" for name, value in stated.items() if here.get(name) != value) or (
        "" if stated.keys() == here.keys() else "less is stated than is known here"
    )


@contextmanager
def _threads(platform: Mapping[str, Any] | None) -> Iterator[None]:
    """As many threads as the first run had: the order of floating-point sums depends on it."""
    before = os.environ.get("OMP_NUM_THREADS")
    if platform:
        os.environ["OMP_NUM_THREADS"] = str(max(1, min(int(platform["threads"]), MOST_THREADS)))
    try:
        yield
    finally:
        os.environ.pop("OMP_NUM_THREADS", None)
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before


def _compare(name: str, outs: tuple[str, ...], made: Path, first: Path, alike: bool) -> Agreement:
    verdict, farthest = BIT_IDENTICAL, ""
    for out in outs:
        if comparison.identical(first / out, made / out):
            continue
        if name == "report":
            return Agreement(name, _page(first / out, made / out, alike), alike, out)
        if not comparison.close(first / out, made / out):
            return Agreement(name, DIFFERENT, alike, out)
        verdict, farthest = WITHIN_TOLERANCE, out
    return Agreement(name, verdict, alike, farthest)


def _page(first: Path, made: Path, alike: bool) -> str:
    """On another kind of machine the page quotes hashes and figures that may differ, each compared at its own
    stage.
    """
    try:
        if comparison.same_page(first, made):
            return PAGE
        return FIGURES if not alike and comparison.same_page(first, made, figures=False) else DIFFERENT
    except (OSError, ValueError):
        return DIFFERENT


def remake(contents: Contents, code: Code, workspace: Path, home: Project) -> Iterator[Agreement]:
    """Make every release again from the sealed records of the owner's workspace. Nothing is charged.

    Raises:
        InputError: the sealed records of the bundle's commit are not in the DVC cache.
    """
    _bring_records(contents, workspace)
    for stage in contents.stages("release"):
        signed = contents.witnesses[stage.name].body["outs"]
        asked = request(stage.name, workspace=contents.root, home=home, code=code, boundary=WALL)
        ids = {out: contents.releases[out].release_id for out in stage.outs if out in contents.releases}
        found = recompute(asked, ids, partial(_is_signed, signed))
        wrong = [out for out, same in found.items() if not same]
        verdict = DIFFERENT if wrong else BIT_IDENTICAL if found else NOTHING_RELEASED
        yield Agreement(stage.name, verdict, True, wrong[0] if wrong else "")


def _is_signed(signed: Mapping[str, Any], out: str, digest: str) -> bool:
    return bool(signed[out]["sha256"] == digest)


def _bring_records(contents: Contents, workspace: Path) -> None:
    cache = Cache(workspace)
    for locked in contents.lock.values():
        for item in locked.get("outs", []):
            if contents.graph.label(item["path"]) == "sealed":
                cache.write(item, contents.root / item["path"], remote="sealed")
