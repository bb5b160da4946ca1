"""What `airlock budget` answers: whose ledger, what params.yaml would cost, whether the books are whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages import registry
from stages.boundary import broker, handles, manifest, receipts, zones
from stages.boundary.canonical import sha256_path
from stages.boundary.home import Project
from stages.boundary.ledger import Ledger, Quote, Release
from stages.boundary.trees import load_graph
from stages.errors import BudgetRefused, InputError, LedgerError, ParamsError
from stages.params import Params
from stages.params import check as check_params
from stages.privacy.plan import Facts, Plan

LABELS = {False: "real", True: "scratch"}


@dataclass(frozen=True)
class Price:
    """One out of a release stage. `epsilon` is its own, at the population's delta; None where nothing more is charged."""

    out: str
    mechanism: str
    passes: int
    epsilon: float | None
    status: str  # "new" | "reserved" | "committed" | "not charged"


@dataclass(frozen=True)
class Point:
    """One setting of a sweep: its releases, and the quote of it and all before it together."""

    settings: Mapping[str, Any]
    prices: tuple[Price, ...]
    quote: Quote
    objection: str | None


def names(workspace: Path) -> dict[str, bool]:
    """Every population with a handle, and whether it is public."""
    found = (handles.read_folder(folder).get("records") for folder in sorted((workspace / handles.FOLDER).glob("*/")))
    return {handle.population: handle.public for handle in found if handle}


def ledgers(project: Project, workspace: Path) -> dict[bool, Ledger]:
    """The real and the scratch ledger, by whether they are scratch.

    Raises:
        LedgerError: if one is missing although a handle names a population of its kind.
        InputError: if there is no population at all.
    """
    known, found = set(names(workspace).values()), {}
    for scratch in LABELS:
        try:
            found[scratch] = broker.open_ledger(project, public=scratch)
        except LedgerError:
            if scratch in known:
                raise
    if not found:
        raise InputError("there is no population yet: run `airlock add FILE --name NAME` or `airlock data fetch wdbc`")
    return found


def ledger_of(project: Project, workspace: Path, population: str) -> Ledger:
    """The ledger that a population's budget is kept in."""
    known = names(workspace)
    if population in known:
        return broker.open_ledger(project, public=known[population])
    books = ledgers(project, workspace)
    for ledger in books.values():
        if population in ledger.populations():
            return ledger
    everyone = sorted({*known, *itertools.chain.from_iterable(ledger.populations() for ledger in books.values())})
    raise InputError(f"no population '{population}': known are {', '.join(everyone) or 'none'}; a new one is added by `airlock add FILE`")


def problems(project: Project, workspace: Path) -> list[str]:
    """Everything that is wrong with the ledgers, and with the receipts that bear witness to them."""
    witnesses = receipts.in_workspace(workspace)
    found = [f"{receipt.path} {receipt.problem}" for receipt in witnesses if receipt.problem]
    bodies = [receipt.body["ledger"] for receipt in witnesses if not receipt.problem and receipt.body.get("ledger")]
    needed = {bool(body["scratch"]) for body in bodies} | set(names(workspace).values())
    for scratch, label in LABELS.items():
        heads = [(int(body["sequence"]), str(body["head"])) for body in bodies if bool(body["scratch"]) == scratch]
        try:
            found += [f"{label} ledger: {problem}" for problem in broker.open_ledger(project, public=scratch).verify(heads)]
        except LedgerError as error:
            found += [str(error)] if scratch in needed else []
    return found


def price(project: Project, workspace: Path, params: Params, sweep: Sequence[Mapping[str, Any]] = ({},)) -> list[Point]:
    """Price what params.yaml would release, once per setting of a sweep. No record is read; each setting is added to those before."""
    graph = load_graph(workspace)
    points, known = [], dict[str, Release]()
    for settings in sweep:
        changed = override(params, settings)
        facts = handles.public_facts(workspace, changed)
        broker.check_delta(changed, facts)
        ledger = broker.open_ledger(project, public=facts.public)
        asked = list(_releases(graph, changed, facts, workspace))
        known |= {release.release_id: release for _, release in asked}
        quote = ledger.quote(facts.population, known.values())
        points.append(Point(settings, tuple(_price(out, release, ledger) for out, release in asked), quote, ledger.objection(quote)))
    return points


def check(project: Project, workspace: Path, params: Params, stage: zones.Stage) -> None:
    """Refuse a release stage of the pipeline unless all that the pipeline would release fits: half of it is worth nothing.

    Raises:
        BudgetRefused: with the ledger's own words; nothing was reserved.
    """
    if stage.name != "evaluate-private" and (objection := price(project, workspace, params)[0].objection):
        raise BudgetRefused(objection)


def _releases(graph: zones.Graph, params: Params, facts: Facts, workspace: Path) -> Iterator[tuple[str, Release]]:
    """Every out that applies, with the id that it would have: an id that is known costs nothing."""
    ids: dict[str, str | None] = {}
    for stage in graph:
        if stage.zone != "release" or (stage.name == "evaluate-private" and params.evaluate.holdout != "private"):
            continue
        upstream = [_identity(dep, graph, ids, workspace) for dep in stage.deps if graph.makers(dep) and graph.label(dep) != "sealed"]
        for out, plan in registry.plans(stage.name, params, facts).items():
            if plan.mechanism == "none":
                ids[out] = None
                continue
            ids[out] = manifest.release_id(plan, facts, [one for one in upstream if one])
            yield out, as_release(plan, facts, str(ids[out]))


def _identity(dep: str, graph: zones.Graph, ids: Mapping[str, str | None], workspace: Path) -> str | None:
    if dep in ids:
        return ids[dep]
    # An artifact that is not made yet gives an id that nothing has: the release is new in any case.
    return sha256_path(workspace / dep) if (workspace / dep).exists() else f"not made yet: {dep}"


def as_release(plan: Plan, facts: Facts, release_id: str) -> Release:
    """A plan in the ledger's words."""
    event = None if plan.public_only else plan.proven.event
    return Release(
        release_id, facts.population, plan.mechanism, event or None, plan.proven.unit, plan.proven.neighbours, plan.passes, facts.public
    )


def _price(out: str, release: Release, ledger: Ledger) -> Price:
    if release.event is None:
        return Price(out, release.mechanism, release.passes, None, "not charged")
    if known := ledger.release(release.release_id):
        return Price(out, release.mechanism, release.passes, None, "committed" if known.committed else "reserved")
    return Price(out, release.mechanism, release.passes, ledger.quote(release.population, [release]).alone, "new")


def override(params: Params, settings: Mapping[str, Any]) -> Params:
    """params.yaml with some values changed, checked like the file itself."""
    document = params.model_dump()
    for key, value in settings.items():
        *parents, last = key.split(".")
        place: Any = document
        for parent in parents:
            place = place.get(parent) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            raise ParamsError(f"--sweep {key}: params.yaml has no section '{'.'.join(parents)}'")
        place[last] = value
    return check_params(Params, document, "--sweep")


def read_sweep(options: Iterable[str]) -> list[dict[str, Any]]:
    """Every combination of options like `release.epsilon=0.1,0.5,1`."""
    import yaml

    axes = []
    for option in options:
        key, separator, values = option.partition("=")
        if not (key and separator and values):
            raise InputError(f"--sweep '{option}' is not KEY=VALUE,VALUE: write for example --sweep release.epsilon=0.1,0.5,1")
        axes.append([(key, yaml.safe_load(value)) for value in values.split(",")])
    return [dict(point) for point in itertools.product(*axes)]
