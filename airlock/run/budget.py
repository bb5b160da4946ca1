"""What `airlock budget` answers: whose ledger, what params.yaml would cost, whether the books are whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airlock.errors import BudgetRefused, InputError, LedgerError, LedgerMoved, ParamsError
from airlock.evidence import receipts, zones
from airlock.evidence.revisions import load_graph
from airlock.inside import manifest
from airlock.inside.digests import sha256_path
from airlock.ledger import Ledger, Quote, Release, refusals
from airlock.models.features.choice import Choice, choose
from airlock.owner.home import Project
from airlock.params import Params, parse_value
from airlock.params import check as check_params
from airlock.privacy.continual import Errors, expected
from airlock.privacy.plan import Facts, Plan
from airlock.records import handles
from airlock.run import nights, orders, questions, reconcile

EVALUATION = "evaluate-private"
LABELS = {False: "real", True: "scratch"}
OTHER_TARGET = (
    "train.target is '{target}', and private records are judged by the label '{label}': set it to null in "
    "params.yaml; nothing was charged"
)


@dataclass(frozen=True)
class Price:
    """One out of a release stage.

    `epsilon` is its own, at the population's delta; None where nothing more is charged. `settled` is what the
    mechanism chose from public facts, where it says so.
    """

    out: str
    mechanism: str
    passes: int
    epsilon: float | None
    status: str  # "new" | "reserved" | "committed" | "not charged"
    settled: str = ""


@dataclass(frozen=True)
class Point:
    """One setting of a sweep: its releases, and the quote of it and all before it together.

    `choice` is what `auto` stands for in it, `nights` the expected noise of a horizon's totals.
    """

    settings: Mapping[str, Any]
    prices: tuple[Price, ...]
    quote: Quote
    objection: str | None
    choice: Choice
    nights: tuple[Errors, ...] = ()


def names(workspace: Path) -> dict[str, bool]:
    """Every population with a handle, and whether it is public."""
    found = (
        handles.read_folder(folder).get("records")
        for folder in sorted((workspace / handles.FOLDER).glob("*/"))
    )
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
            found[scratch] = orders.open_ledger(project, public=scratch)
        except LedgerMoved:
            raise
        except LedgerError:
            if scratch in known:
                raise
    if not found:
        raise InputError(
            "there is no population yet: run `airlock add FILE --name NAME` or `airlock data fetch wdbc`"
        )
    return found


def ledger_of(project: Project, workspace: Path, population: str) -> Ledger:
    """The ledger that a population's budget is kept in."""
    known = names(workspace)
    if population in known:
        return orders.open_ledger(project, public=known[population])
    books = ledgers(project, workspace)
    for ledger in books.values():
        if population in ledger.populations():
            return ledger
    everyone = sorted(
        {*known, *itertools.chain.from_iterable(ledger.populations() for ledger in books.values())}
    )
    raise InputError(
        f"no population '{population}': known are {', '.join(everyone) or 'none'}; a new one is added by "
        "`airlock add FILE`"
    )


def reservation(project: Project, workspace: Path, beginning: str) -> tuple[Ledger, str]:
    """The ledger and the full id of an open reservation, from the beginning of its id.

    Raises:
        InputError: if there is none, or more than one.
    """
    found = [
        (ledger, release.release_id)
        for ledger in ledgers(project, workspace).values()
        for spent in ledger.snapshot()[1]
        for release in spent.reserved
        if release.release_id.startswith(beginning)
    ]
    if len(found) != 1 or len(beginning) < 6:
        raise InputError(f"'{beginning}' is not one open reservation: `airlock budget show` lists them")
    return found[0]


def check_cap(workspace: Path, population: str, delta: float) -> None:
    """Refuse a private population's cap whose delta would allow to publish one of its records whole.

    Raises:
        InputError: delta is not below 1/n; 1/users where records are counted per user.
    """
    for folder in sorted((workspace / handles.FOLDER).glob("*/")):
        handle = handles.read_folder(folder).get("records")
        if handle and handle.population == population and not handle.public:
            refusals.check_small("the cap's delta", delta, handle.n)


def problems(project: Project, workspace: Path) -> list[str]:
    """Everything that is wrong with the ledgers, and with the receipts, releases and heads that bear witness
    to them.
    """
    witnesses = receipts.in_workspace(workspace)
    found = [f"{receipt.path} {receipt.problem}" for receipt in witnesses if receipt.problem]
    return found + reconcile.problems(project, workspace, needed=set(names(workspace).values()))


def price(
    project: Project, workspace: Path, params: Params, sweep: Sequence[Mapping[str, Any]] = ({},)
) -> list[Point]:
    """Price what params.yaml would release, once per setting of a sweep.

    No record is read; each setting is added to those before.
    """
    graph = load_graph(workspace)
    points, known, pricing = [], dict[str, Release](), []
    for settings in sweep:
        changed = override(params, settings)
        facts = handles.public_facts(workspace, changed)
        orders.check_delta(changed, facts)
        nights.check_place(changed, facts)
        pricing.append(questions.Pricing(_release_stages(graph, changed), changed, facts))
    priced = questions.plans(pricing, workspace=workspace, project=project)
    for settings, one, plans in zip(sweep, pricing, priced, strict=True):
        facts = one.facts
        ledger = orders.open_ledger(project, public=facts.public)
        asked = list(_releases(graph, plans, facts, workspace, one.params))
        known |= {release.release_id: release for _, release in asked}
        quote = ledger.quote(facts.population, known.values())
        points.append(
            Point(
                settings,
                tuple(
                    replace(_price(out, release, ledger), settled=_settled(_plan_of(plans, out)))
                    for out, release in asked
                ),
                quote,
                ledger.objection(quote),
                choose(one.params.release, facts),
                _nights(one.params, plans),
            )
        )
    return points


def check(project: Project, workspace: Path, params: Params, stage: zones.Stage) -> None:
    """Refuse a release stage of the pipeline unless all that the pipeline would release fits: half of it is
    worth nothing. A stage that charges nothing more always runs.

    Raises:
        BudgetRefused: with the ledger's own words; nothing was reserved.
        InputError: a private evaluation is asked of a model of another column than the label.
    """
    if stage.name == EVALUATION:
        check_target(params, handles.public_facts(workspace, params).label)
        return
    (point,) = price(project, workspace, params)
    charges = any(price.status == "new" for price in point.prices if price.out in stage.outs)
    if point.objection and charges:
        raise BudgetRefused(point.objection)


def check_target(params: Params, label: str) -> None:
    """Refuse to judge a model of another column by the label, before anything is reserved.

    Raises:
        InputError: naming both columns.
    """
    if params.train.target not in (None, label):
        raise InputError(OTHER_TARGET.format(target=params.train.target, label=label))


def due(project: Project, workspace: Path, params: Params) -> list[str]:
    """The outs that a run of the whole pipeline would pay for. A private evaluation is priced with them and is not one
    of them: only the owner runs it, by hand, so what charges nothing but that always runs.

    Raises:
        BudgetRefused: with the ledger's own words; nothing was reserved.
    """
    (point,) = price(project, workspace, params)
    stages = load_graph(workspace).stages
    owners = stages[EVALUATION].outs if EVALUATION in stages else ()
    asked = [price for price in point.prices if price.out not in owners]
    if point.objection and any(price.status in ("new", "not charged") for price in asked):
        raise BudgetRefused(point.objection)
    return [price.out for price in asked if price.status == "new"]


def _release_stages(graph: zones.Graph, params: Params) -> tuple[str, ...]:
    """The stages that this run of the pipeline would pay for; a private evaluation only where it is asked
    for.
    """
    private = params.evaluate.holdout == "private"
    return tuple(
        stage.name for stage in graph if stage.zone == "release" and (stage.name != EVALUATION or private)
    )


def _releases(
    graph: zones.Graph, plans: questions.Plans, facts: Facts, workspace: Path, params: Params
) -> Iterator[tuple[str, Release]]:
    """Every out that applies, with the id that it would have: an id that is known costs nothing."""
    ids: dict[str, str | None] = {}
    for name, priced in plans.items():
        upstream = [
            _identity(dep, graph, ids, workspace)
            for dep in graph.stage(name).deps
            if graph.makers(dep) and graph.label(dep) != "sealed"
        ]
        for out, plan in priced.items():
            if plan.mechanism == "none":
                ids[out] = None
                continue
            built_on = [one for one in upstream if one]
            ids[out] = manifest.release_id(plan, nights.facts_for(name, params, facts), built_on)
            horizon = nights.horizon_of(plan, facts, built_on, params)
            yield out, replace(as_release(plan, facts, str(ids[out])), horizon=horizon)


def _identity(dep: str, graph: zones.Graph, ids: Mapping[str, str | None], workspace: Path) -> str | None:
    if dep in ids:
        return ids[dep]
    # An artifact that is not made yet gives an id that nothing has: the release is new in any case.
    return sha256_path(workspace / dep) if (workspace / dep).exists() else f"not made yet: {dep}"


def as_release(plan: Plan, facts: Facts, release_id: str) -> Release:
    """A plan in the ledger's words."""
    event = None if plan.public_only else plan.proven.event
    return Release(
        release_id,
        facts.population,
        plan.mechanism,
        event or None,
        plan.proven.unit,
        plan.proven.neighbours,
        plan.passes,
        facts.public,
    )


def _price(out: str, release: Release, ledger: Ledger) -> Price:
    if release.event is None:
        return Price(out, release.mechanism, release.passes, None, "not charged")
    if known := ledger.release(release.release_id):
        return Price(
            out, release.mechanism, release.passes, None, "committed" if known.committed else "reserved"
        )
    if release.later_night:
        return Price(out, release.mechanism, release.passes, None, "paid with the first night")
    return Price(
        out, release.mechanism, release.passes, ledger.quote(release.population, [release]).alone, "new"
    )


def _nights(params: Params, plans: questions.Plans) -> tuple[Errors, ...]:
    """The noise that is expected of a horizon, by whether its rows are whitened, and by what at first."""
    if params.release.horizon is None:
        return ()
    known = [plan.parameters for priced in plans.values() for plan in priced.values()]
    columns = any(one.get("geometry") == "columns" for one in known)
    prepared = columns or any(one.get("geometry") == "public" for one in known)
    turned = prepared or any("whitening" in one.get("shares", {}) for one in known)
    return tuple(expected(params.release.horizon, turned=turned, prepared=prepared, columns=columns))


def _plan_of(plans: questions.Plans, out: str) -> Plan:
    return next(priced[out] for priced in plans.values() if out in priced)


def _settled(plan: Plan) -> str:
    """What a mechanism with bins chose from public facts: bins of a number and of each column, shares, and how
    loud its tables are.

    Parameters come from behind the wall and are a mechanism's own: nothing else is taken for these four.
    """
    known = plan.parameters
    bins, sizes, shares, weights = (known.get(name) for name in ("bins", "sizes", "shares", "weights"))
    if type(bins) is not int or not isinstance(sizes, list):
        return ""
    if not isinstance(shares, Mapping) or not isinstance(weights, Mapping):
        return ""
    if not all(type(value) is float for value in (*shares.values(), *weights.values())):
        return ""
    named, loud = (
        ", ".join(f"{name} {value:.3g}" for name, value in one.items()) for one in (shares, weights)
    )
    first = ", ".join(str(size) for size in sizes[:40])
    more = "" if len(sizes) <= 40 else ", ..."
    return f"bins of a number {bins}, of the columns {first}{more}; shares {named}; weights {loud}"


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
    axes = []
    for option in options:
        key, separator, values = option.partition("=")
        if not (key and separator and values):
            raise InputError(
                f"--sweep '{option}' is not KEY=VALUE,VALUE: write for example --sweep "
                "release.epsilon=0.1,0.5,1"
            )
        axes.append([(key, parse_value(value, f"--sweep '{option}'")) for value in values.split(",")])
    return [dict(point) for point in itertools.product(*axes)]
