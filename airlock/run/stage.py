"""`airlock run STAGE`: the broker outside the sandbox, and the only one that touches keys, ledger and
network.

Order of events: check parameters and taint -> open and hash the deps -> price and reserve -> derive the keys
that this one stage needs -> confine and run -> check, archive and commit releases -> publish the declared
outs -> sign the receipt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airlock.evidence import receipts
from airlock.evidence.receipt_body import describe
from airlock.inside.sealed import seal_contexts
from airlock.owner import registry
from airlock.owner.home import remember
from airlock.owner.keys import Keyring, signer
from airlock.privacy.plan import Facts
from airlock.records import handles
from airlock.run import dvc
from airlock.run.code import STAGES, digest
from airlock.run.confined import confined, watched
from airlock.run.desk import Desk, open_desk
from airlock.run.outs import publish, remove
from airlock.run.request import Request, request
from airlock.wall.sandbox import Outcome

if TYPE_CHECKING:
    from airlock.ledger import Ledger
    from airlock.run import nights, orders
    from airlock.run.dask_broker import DaskCluster


@dataclass(frozen=True)
class Made:
    """What came of a run, for its receipt.

    Attributes:
        request: what was asked for.
        hashes: of all that it could read in the workspace, from before it started.
        outcome: how the confined code ended; None where none was run.
        orders: the releases of a release stage.
        fingerprints: keyed, of the raw files, by role.
        watched: where records are, of which the recorder tells whether they were opened.
        ledger: the one that was charged.
        connection: the cluster that took part.
        changed: what of the workspace was changed while the code ran.
    """

    request: Request
    hashes: Mapping[str, Mapping[str, str]]
    outcome: Outcome | None = None
    orders: tuple[orders.Order, ...] = ()
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    watched: tuple[Path, ...] = ()
    ledger: Ledger | None = None
    connection: DaskCluster | None = None
    changed: tuple[str, ...] = ()


def run_stage(
    name: str, *, workspace: Path, listen: Callable[[Mapping[str, Any]], None] = lambda event: None
) -> Path:
    """Run one stage behind the wall and return its receipt's path; see the module's first lines for the order
    of events.
    """
    asked = request(name, workspace=workspace, listen=listen)
    sign = signer(asked.project)
    remember(asked.project, asked.workspace)
    dvc.keep_notes(asked.project, asked.workspace)
    receipts.pin(asked.workspace, sign.public_key, owner=asked.zone != "open")
    room = {"sensitive": _ingest, "release": _release, "open": _open}[asked.zone]
    with open_desk(asked) as desk:
        made = room(asked, desk)
        made = replace(made, changed=desk.changed())
        publish(desk.staging, asked.stage.outs, asked.workspace, most=asked.limits.file_size)
    return receipts.write(asked.workspace, describe(made), sign, archive=asked.project.receipts)


def make_again(asked: Request, facts: Mapping[str, Any]) -> None:
    """Replace an open stage's outs by what it makes now, without signing anything."""
    with open_desk(asked) as desk:
        confined(asked, desk, facts=facts)
        publish(desk.staging, asked.stage.outs, asked.workspace, most=asked.limits.file_size)


def _ingest(asked: Request, desk: Desk) -> Made:
    keyring = Keyring.load(asked.project)
    found = handles.of(asked.workspace, asked.params.dataset, asked.params.ingest.night)
    facts = handles.public_facts(asked.workspace, asked.params)
    keys = seal_keys(keyring, facts, keyring.generation) | {"split": keyring.split_key(facts.population)}
    given = {"facts": asdict(facts), "generation": keyring.generation}
    spool = asked.project.spool
    try:
        raw: dict[str, Path] = {
            role: registry.check(asked.project, keyring, handle, spool=spool, progress=_fetching(asked, role))
            for role, handle in found.items()
        }
        outcome = confined(asked, desk, raw=raw, keys=keys, facts=given)
    finally:
        remove(spool)
    fingerprints: dict[str, str] = {role: handle.fingerprint for role, handle in found.items()}
    watch = watched(asked, tuple(raw.values()))
    return Made(asked, desk.hashes, outcome, fingerprints=fingerprints, watched=watch)


def _fetching(asked: Request, role: str) -> Callable[[int, int], None]:
    return lambda done, total: asked.listen(
        {"kind": "progress", "label": f"fetching {role}", "done": done, "total": total}
    )


def _release(asked: Request, desk: Desk) -> Made:
    from airlock.run import budget, nights, orders  # and with them SQLAlchemy, which no other room needs

    keyring, (facts, generation) = Keyring.load(asked.project), orders.read_facts(asked.workspace)
    orders.check_facts(facts, params=asked.params, workspace=asked.workspace, project=asked.project)
    ledger = orders.open_ledger(asked.project, public=facts.public)
    connection = _cluster(asked, desk)
    budget.check(asked.project, asked.workspace, asked.params, asked.stage)
    taken = orders.take_orders(
        asked.stage,
        asked.graph,
        params=asked.params,
        facts=facts,
        ledger=ledger,
        workspace=asked.workspace,
        project=asked.project,
        ready=connection.greet if connection else lambda: None,
    )
    outcomes: list[Outcome] = []

    def make(pending: Sequence[orders.Order]) -> None:
        noise = {order.out: keyring.noise_key(order.release_id, scratch=facts.public) for order in pending}
        ids = {order.out: order.release_id for order in pending}
        keys = seal_keys(keyring, facts, generation)
        horizon = next((order.horizon for order in pending if order.horizon), None)
        visit = None
        if horizon:
            told = nights.prepare(asked.project, asked.workspace, asked.params, facts, ledger, horizon)
            visit = nights.visit(asked.project, keyring, told)
        outcomes.append(
            make_releases(asked, desk, ids, facts, keys, noise, connection=connection, night=visit)
        )

    done = orders.carry_out(
        taken, facts=facts, ledger=ledger, project=asked.project, staging=desk.staging, make=make
    )
    return Made(
        asked,
        desk.hashes,
        outcomes[0] if outcomes else None,
        tuple(done),
        watched=watched(asked),
        ledger=ledger,
        connection=connection,
    )


def make_releases(
    asked: Request,
    desk: Desk,
    ids: Mapping[str, str],
    facts: Facts,
    keys: Mapping[str, bytes],
    noise: Mapping[str, bytes],
    *,
    connection: DaskCluster | None = None,
    night: nights.Visit | None = None,
) -> Outcome:
    """Let the confined stage make releases, with the keys of the
    sealed files and one noise key for each out.
    """
    given = {"facts": asdict(facts), "releases": {out: {"id": one} for out, one in ids.items()}}
    keys = {**keys, **{"noise:" + out: key for out, key in noise.items()}}
    if night:
        given["horizon"], keys["nights"] = night.told, night.key
    progress = "-".join(sorted(ids.values()))
    return confined(
        asked,
        desk,
        keys=keys,
        facts=given,
        connection=connection,
        progress=progress,
        memory=night.folder if night else None,
    )


def _cluster(asked: Request, desk: Desk) -> DaskCluster | None:
    """The one connection that a release stage can be granted; a bad address is told before anything is
    reserved.
    """
    if asked.params.release.engine == "local":
        return None
    from airlock.run.dask_broker import DaskCluster

    return DaskCluster(asked.params.release, asked.project, digest(desk.hashes[STAGES]["sha256"]))


def _open(asked: Request, desk: Desk) -> Made:
    outcome = confined(asked, desk, facts=_public_facts(asked))
    return Made(asked, desk.hashes, outcome, watched=watched(asked))


def _public_facts(asked: Request) -> Mapping[str, Any]:
    """What the report page tells about the budget and the boundary; only that stage is given it."""
    if asked.stage.name != "report":
        return {}
    from airlock.evidence.audit import audit
    from airlock.evidence.evaluation import private_evaluation
    from airlock.evidence.page import page_facts
    from airlock.owner.checks import balance

    judged = private_evaluation(asked.workspace)
    facts = page_facts(audit(asked.workspace).stages, asked.graph, balance(asked.workspace), judged)
    if asked.params.release.horizon is None:
        return facts
    from airlock.run import budget, history

    ledger = budget.ledger_of(asked.project, asked.workspace, asked.params.dataset)
    return facts | {
        "nights": history.tonight(asked.project, asked.workspace, asked.params, ledger, judged=True)
    }


def seal_keys(keyring: Keyring, facts: Facts, generation: int | None) -> dict[str, bytes]:
    """The keys of the sealed files, by the names under which a room has them."""
    contexts = seal_contexts(facts, generation=generation)
    return {"seal:" + role: keyring.seal_key(context) for role, context in contexts.items()}
