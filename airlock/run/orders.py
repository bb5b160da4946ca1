"""The money side of a release: price, reserve before any read, replay what exists, archive, commit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from airlock.errors import BudgetRefused, InputError, ReleaseError
from airlock.evidence.zones import Graph, Stage
from airlock.files import parse_json
from airlock.inside import manifest
from airlock.inside.digests import canonical_json, sha256_path
from airlock.ledger import Ledger, Reservation, refusals
from airlock.owner.home import Project
from airlock.owner.registry import load_registry
from airlock.params import Params
from airlock.privacy.plan import Facts, Plan
from airlock.records import handles
from airlock.run import archive, nights, questions, reconcile, reservations, witness
from airlock.run.reconcile import open_ledger as open_ledger
from airlock.run.reservations import Purpose


@dataclass(frozen=True)
class Order:
    """One out of a release stage: its plan, its id, and what the ledger said."""

    out: str
    plan: Plan
    release_id: str
    status: str  # "none" | "new" | "taken-over" | "committed"
    manifest: str | None = None  # SHA-256 of the committed release.json
    horizon: Mapping[str, Any] | None = None  # of one night among many: see `airlock/ledger/accounts.py`

    @property
    def pending(self) -> bool:
        return self.status in ("new", "taken-over")


def read_facts(workspace: Path) -> tuple[Facts, int | None]:
    """The public facts that ingest wrote beside the sealed records,
    and the key generation that sealed them.
    """
    from airlock.inside.sealed import facts_of, generation_of

    try:
        meta = parse_json((workspace / "data/sealed/meta.json").read_text())
        return facts_of(meta), generation_of(meta)
    except FileNotFoundError:
        raise InputError("data/sealed/meta.json is missing: run `dvc repro ingest` first") from None


MECHANISMS_OWN = ("relevance", "release")
"""Stages that run a mechanism, and so with `release.options`."""
EVALUATES = "evaluate-private"
UNPRICED = ("users", "columns", "layout", "label", "split")
"""Facts on which no price rests: they choose a feature map or names, older data sets have others, and the split is
in the key of the sealed files.
"""


def check_facts(facts: Facts, *, params: Params, workspace: Path, project: Project) -> None:
    """The facts beside the sealed records are those of handle, schema and parameters, and the population is
    as public as it was added.

    The key of a sealed file is derived from population, fingerprint, schema and split, and from nothing else
    that stands in meta.json, which anyone who can write to the workspace can write.

    Raises:
        ReleaseError: they are not.
    """
    wanted = handles.public_facts(workspace, params)
    known = load_registry(project).populations.get(facts.population)
    # Where nobody added it (keys restored on another machine), it is private: only that is safe to believe.
    names = [one.name for one in fields(Facts) if one.name not in UNPRICED]
    if facts.public != bool(known and known["public"]) or any(
        getattr(facts, name) != getattr(wanted, name) for name in names
    ):
        raise ReleaseError(
            "data/sealed/meta.json is not what ingest wrote for these records, schema and parameters: run "
            "`dvc repro -f ingest`"
        )


def take_orders(
    stage: Stage,
    graph: Graph,
    *,
    params: Params,
    facts: Facts,
    ledger: Ledger,
    workspace: Path,
    project: Project,
    ready: Callable[[], None] = lambda: None,
) -> list[Order]:
    """Price every out of a release stage and reserve what must be paid, before any record is read (`take`)."""
    check_upstream(stage, graph, ledger=ledger, workspace=workspace)
    priced = price(stage, graph, params=params, facts=facts, workspace=workspace, project=project)
    greet, ready = ready, lambda: _ready(priced, stage, params, facts, ledger, workspace, project, greet)
    purpose = Purpose(stage.name, params.model_dump(mode="json"), _released(stage, graph, workspace))
    fresh = [order.release_id for order in priced if order.status == "new"]
    for release_id in fresh:
        reservations.note(project, release_id, purpose)
    try:
        return take(priced, facts=facts, ledger=ledger, workspace=workspace, project=project, ready=ready)
    finally:
        for release_id in fresh:
            known = ledger.release(release_id)
            if known is None or known.committed:
                reservations.forget(project, release_id)


def _ready(
    priced: Sequence[Order],
    stage: Stage,
    params: Params,
    facts: Facts,
    ledger: Ledger,
    workspace: Path,
    project: Project,
    greet: Callable[[], None],
) -> None:
    """Raises if what was ordered cannot be made here and now: before anything is reserved."""
    nights.check_first(stage.name, params, facts)
    if stage.name in MECHANISMS_OWN:
        questions.check_device(params, workspace=workspace, project=project)
    if stage.name == EVALUATES:
        questions.check_model(facts, params, workspace=workspace, project=project)
    plans = [order.plan for order in priced]
    questions.check_encoder(plans, facts, params, workspace=workspace, project=project)
    for order in priced:
        if order.horizon and not _exists(order, ledger, project):
            nights.check_participations(project, facts)
            nights.prepare(project, workspace, params, facts, ledger, order.horizon)
    greet()


def take(
    priced: Sequence[Order],
    *,
    facts: Facts,
    ledger: Ledger,
    workspace: Path,
    project: Project,
    ready: Callable[[], None] = lambda: None,
) -> list[Order]:
    """Reserve what must be paid.

    The books must agree first. Unless all of it exists, `ready` is called before anything is reserved: it
    raises if the release cannot be made now.
    """
    reconcile.require(project, workspace)
    orders = []
    if not all(order.status == "none" or _exists(order, ledger, project) for order in priced):
        ready()
    for order in priced:
        if order.status == "none":
            orders.append(order)
        else:
            held = _reserve(order, facts, ledger)
            orders.append(replace(order, status=held.status, manifest=held.manifest))
    witness.note(project, ledger)
    return orders


def carry_out(
    taken: Sequence[Order],
    *,
    facts: Facts,
    ledger: Ledger,
    project: Project,
    staging: Path,
    make: Callable[[Sequence[Order]], None],
) -> list[Order]:
    """From reservations to releases, in the one order that keeps the books whenever the process is killed.

    What exists is replayed. Of the rest it is written down that it starts; only then does `make` derive keys
    and read records; bytes are archived before they are committed.
    """
    taken = [finish(order, project=project, ledger=ledger) for order in taken]
    for order in taken:
        if order.status == "committed":
            replay(order, project=project, staging=staging)
        elif order.status == "none":
            write_none(order, facts=facts, staging=staging)
    if pending := [order for order in taken if order.pending]:
        start(pending, ledger)
        make(pending)
        for order in pending:
            settle(order, project=project, ledger=ledger, staging=staging)
    return taken


def start(orders: Sequence[Order], ledger: Ledger) -> None:
    """Write down, before a key is derived, that these releases are about to be made: they cannot be given
    back any more.
    """
    for order in orders:
        ledger.start(order.release_id)


def _exists(order: Order, ledger: Ledger, project: Project) -> bool:
    """Whether a release was made already, be it committed or not."""
    known = ledger.release(order.release_id)
    return known is not None and (known.committed or archive.holds(project.archive, order.release_id))


def price(
    stage: Stage, graph: Graph, *, params: Params, facts: Facts, workspace: Path, project: Project
) -> list[Order]:
    """What a release stage would make, with its ids, without asking the ledger."""
    check_delta(params, facts)
    nights.check_place(params, facts)
    asked = questions.Pricing((stage.name,), params, facts)
    plans = questions.plans([asked], workspace=workspace, project=project)[0][stage.name]
    upstream = _upstream(stage, graph, workspace)
    orders = []
    for out, plan in plans.items():
        if out not in stage.outs:
            raise ReleaseError(
                f"stage '{stage.name}' would release '{out}', which is not among its outs in dvc.yaml"
            )
        status = "none" if plan.mechanism == "none" else "new"
        release_id = manifest.release_id(plan, nights.facts_for(stage.name, params, facts), upstream)
        horizon = nights.horizon_of(plan, facts, upstream, params)
        orders.append(Order(out, plan, release_id, status, horizon=horizon))
    return orders


def check_upstream(stage: Stage, graph: Graph, *, ledger: Ledger, workspace: Path) -> None:
    """What a release stage builds on is what was committed, to the last byte.

    A release.json that fits its own files can be written by anyone who can write to the workspace, and a
    mechanism that is given a forged first release may prove nothing about the second one.

    Raises:
        ReleaseError: a release that it reads is not in the ledger, or is there with other bytes.
    """
    for dep in stage.deps:
        if graph.label(dep) != "released":
            continue
        found = manifest.load(workspace / dep)
        known = ledger.release(found.release_id) if found.applies else None
        if found.applies and (known is None or known.manifest != manifest.digest(workspace / dep)):
            raise ReleaseError(
                f"{dep} is not the release that the ledger committed: run `dvc repro -f "
                f"{graph.makers(dep)[0].name}`, which replays it"
            )


def check_delta(params: Params, facts: Facts) -> None:
    """delta must be far below 1/n: at 1/n, publishing one whole record would be allowed.

    Holds for evaluation too, on its records.
    """
    by_user = params.release.unit == "user" and facts.users is not None
    refusals.check_small(
        "release.delta", params.release.delta, (facts.users or 0) if by_user else facts.total, by_user
    )
    if params.evaluate.holdout == "private":
        refusals.check_small("evaluate.delta", params.evaluate.delta, facts.n_holdout, False)


def _reserve(order: Order, facts: Facts, ledger: Ledger) -> Reservation:
    plan = order.plan
    if plan.public_only and not facts.public:
        raise BudgetRefused(
            f"'{plan.mechanism}' has no finite proof ({plan.proven.reason}): it is refused for private data; "
            f"only a schema with `public: true` may use it"
        )
    return ledger.reserve(
        facts.population,
        release_id=order.release_id,
        mechanism=plan.mechanism,
        event=None if plan.public_only else dict(plan.proven.event or {}),
        neighbours=plan.proven.neighbours,
        unit=plan.proven.unit,
        passes=plan.passes,
        public=facts.public,
        horizon=order.horizon,
    )


def _released(stage: Stage, graph: Graph, workspace: Path) -> dict[str, str]:
    """Ids of the releases that this stage builds on, by out."""
    deps = [dep for dep in stage.deps if graph.label(dep) == "released"]
    found = {dep: manifest.load(workspace / dep) for dep in deps}
    return {dep: one.release_id for dep, one in found.items() if one.applies}


def _upstream(stage: Stage, graph: Graph, workspace: Path) -> list[str]:
    """Ids of the releases, and hashes of the open artifacts, that this stage builds on."""
    ids = []
    for dep in stage.deps:
        if graph.label(dep) == "released":
            found = manifest.load(workspace / dep)
            ids += [found.release_id] if found.applies else []
        elif graph.makers(dep) and graph.label(dep) == "open":
            ids.append(sha256_path(workspace / dep))
    return ids


def finish(order: Order, *, project: Project, ledger: Ledger) -> Order:
    """Commit what an earlier run had made, checked and archived before it died; everything else stays as it
    is.
    """
    if order.status != "taken-over" or not archive.holds(project.archive, order.release_id):
        return order
    digest = manifest.digest(project.archive / order.release_id)
    ledger.commit(order.release_id, digest)
    reservations.forget(project, order.release_id)
    witness.note(project, ledger, ledger.release(order.release_id))
    return replace(order, status="committed", manifest=digest)


def replay(order: Order, *, project: Project, staging: Path) -> None:
    """Put a committed release's archived bytes where the stage
    would have written them: no read, no charge.
    """
    archive.restore(project.archive, order.release_id, staging / order.out, manifest_sha256=order.manifest)


def write_none(order: Order, *, facts: Facts, staging: Path) -> None:
    """A door that stays shut: a manifest that says so."""
    manifest.write(staging / order.out, plan=order.plan, facts=facts, release_id=order.release_id)


def settle(order: Order, *, project: Project, ledger: Ledger, staging: Path) -> None:
    """Check a fresh release against its price, archive its bytes, commit it."""
    folder = staging / order.out
    made = manifest.load(folder)
    if made.release_id != order.release_id or _promise(folder) != manifest.plan_json(order.plan):
        raise ReleaseError(f"'{order.out}' is not what was priced: its manifest differs from the plan")
    archive.store(project.archive, order.release_id, folder)
    ledger.commit(order.release_id, manifest.digest(folder))
    reservations.forget(project, order.release_id)
    witness.note(project, ledger, ledger.release(order.release_id))
    if told := made.details.get("horizon"):
        nights.tidy(project, told, order.release_id)


def _promise(folder: Path) -> Mapping[str, Any]:
    document = parse_json((folder / manifest.NAME).read_text())
    names = ("mechanism", "version", "parameters", "passes", "interactive", "proven", "claimed")
    promise: dict[str, Any] = json.loads(canonical_json({name: document[name] for name in names}))
    return promise
