"""`airlock run STAGE`: the broker outside the sandbox, and the only one that touches keys, ledger and
network.

Order of events: check parameters and taint -> open and hash the deps -> price and reserve -> derive the keys
that this one stage needs -> confine and run -> check, archive and commit releases -> publish the declared
outs -> sign the receipt.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airlock.errors import BoundaryError, DiskFull, InputError
from airlock.evidence import receipts, zones
from airlock.evidence.receipt_body import describe
from airlock.evidence.revisions import Workspace, load_graph, pipelines
from airlock.inside.sealed import seal_contexts
from airlock.owner import registry
from airlock.owner.home import Project, canary, project, remember
from airlock.owner.keys import Keyring, signer
from airlock.params import BoundaryParams, Params, load_params, parse_params
from airlock.privacy.plan import Facts
from airlock.records import handles
from airlock.run import allowed, leftovers, limits, paths
from airlock.run.code import TOOL, Code, of_workspace
from airlock.run.handover import Listener, Visit, bytecode, confine, memory_folder
from airlock.run.limits import Limits
from airlock.run.outs import publish, remove
from airlock.wall.disks import RESERVE_BYTES
from airlock.wall.grants import Held
from airlock.wall.layers import Layer, choose
from airlock.wall.sandbox import Outcome
from airlock.workspaces import lock

if TYPE_CHECKING:
    from airlock.ledger import Ledger
    from airlock.run import nights, orders
    from airlock.run.dask_broker import DaskCluster

_OUTS, _CHECKPOINT, _RAW, _HORIZON = (
    "/.airlock/outs",
    "/.airlock/checkpoint",
    "/.airlock/raw",
    "/.airlock/horizon",
)
"""What these folders are called in a new root, where their own names would tell about the machine."""
GATE = "dataset"
"""The stage that DVC comes to first, whatever data set is asked for."""


@dataclass(frozen=True)
class Request:
    """One run of one stage, as it is asked for: checked, and nothing started yet."""

    workspace: Path
    params: Params
    graph: zones.Graph
    stage: zones.Stage
    project: Project
    code: Code
    boundary: BoundaryParams
    layers: frozenset[Layer]
    limits: Limits
    listen: Listener

    @property
    def zone(self) -> str:
        """The stage's room."""
        return str(self.stage.zone)

    @property
    def new_root(self) -> bool:
        """Whether paths have other names inside."""
        return Layer.ROOT in self.layers


@dataclass(frozen=True)
class Desk:
    """What lies open while a stage runs.

    Attributes:
        held: everything of the workspace that it reads, by name.
        hashes: SHA-256 and MD5 of each, taken before it starts.
        stamps: when each was last changed, as the kernel says, from before that.
        staging: where its outs go.
        scratch: its private TMPDIR.
    """

    held: Mapping[str, Held]
    hashes: Mapping[str, Mapping[str, str]]
    stamps: Mapping[str, Mapping[str, tuple[int, ...]]]
    staging: Path
    scratch: Path

    def changed(self) -> tuple[str, ...]:
        """What is not as it was when it was hashed."""
        return tuple(name for name, one in self.held.items() if _stamps(name, one) != self.stamps[name])


def _stamps(name: str, held: Held) -> dict[str, tuple[int, ...]]:
    tool = name.split("/")[0] == TOOL.name
    return paths.stamps(held, compiled=not zones.is_code(name), folders=not tool)


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


def request(
    name: str,
    *,
    workspace: Path,
    listen: Listener = lambda event: None,
    home: Project | None = None,
    code: Code | None = None,
    boundary: BoundaryParams | None = None,
) -> Request:
    """Check what is asked for.

    Args:
        name: of a stage in dvc.yaml.
        workspace: the project's top folder.
        listen: told of progress.
        home: keys, ledger and log; those of the workspace's project otherwise.
        code: what runs behind the wall; the workspace's own otherwise.
        boundary: the wall, for somebody who does not leave it to the workspace's params.yaml (`airlock
            verify`).

    Raises:
        BoundaryError: the pipeline is not sound, or the wall cannot be raised here.
    """
    if problem := allowed.stage_problem(name):
        raise BoundaryError(problem)
    workspace = workspace.resolve()
    params, graph = load_params(workspace / "params.yaml"), load_graph(workspace)
    stage = graph.stage(name)
    zones.check(graph)
    if name == GATE and (wrong := handles.objection(workspace, params.dataset)):
        raise InputError(wrong)
    wall = boundary or params.boundary
    return Request(
        workspace=workspace,
        params=params,
        graph=graph,
        stage=stage,
        project=home or project(workspace),
        code=code or of_workspace(workspace),
        boundary=wall,
        layers=choose(wall.enforcement, zone=str(stage.zone)),
        limits=limits.of(wall),
        listen=listen,
    )


def run_stage(
    name: str, *, workspace: Path, listen: Callable[[Mapping[str, Any]], None] = lambda event: None
) -> Path:
    """Run one stage behind the wall and return its receipt's path; see the module's first lines for the order
    of events.
    """
    asked = request(name, workspace=workspace, listen=listen)
    sign = signer(asked.project)
    remember(asked.project, asked.workspace)
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
    connection = _cluster(asked.params, asked.project)
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


def _cluster(params: Params, home: Project) -> DaskCluster | None:
    """The one connection that a release stage can be granted; a bad address is told before anything is
    reserved.
    """
    if params.release.engine == "local":
        return None
    from airlock.run.dask_broker import DaskCluster

    return DaskCluster(params.release, home)


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


def confined(
    asked: Request,
    desk: Desk,
    *,
    raw: Mapping[str, Path] | None = None,
    progress: str = "",
    keys: Mapping[str, bytes] | None = None,
    facts: Mapping[str, Any] | None = None,
    connection: DaskCluster | None = None,
    memory: Path | None = None,
) -> Outcome:
    """Run the stage's code behind the wall: it sees what is held, the raw files if it is given any, and its
    own folders; a night also the folder with the memory of its horizon.
    """
    for out in asked.stage.outs:
        (desk.staging / out).parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        reads = {**desk.held, **_hold_raw(raw or {}, stack)}
        staging = stack.enter_context(paths.hold_folder(desk.staging, _OUTS))
        inside = {name: one.inside(new_root=asked.new_root) for name, one in reads.items()}
        inside |= {out: staging.inside(new_root=asked.new_root) / out for out in asked.stage.outs}
        writes, kept = [staging], checkpoint(asked, progress)
        if kept:
            writes.append(stack.enter_context(paths.hold_folder(kept, _CHECKPOINT)))
            inside["checkpoint"] = writes[-1].inside(new_root=asked.new_root)
        if memory:
            writes.append(stack.enter_context(paths.hold_folder(memory, _HORIZON)))
            inside["horizon"] = writes[-1].inside(new_root=asked.new_root)
        visit = Visit(
            stage=asked.stage.name,
            zone=asked.zone,
            module=asked.code.module_of(asked.stage.name, asked.stage.module),
            code=asked.code,
            params=asked.params,
            paths=inside,
            reads=tuple(reads.values()),
            writes=tuple(writes),
            scratch=desk.scratch,
            limits=asked.limits,
            watch=watched(asked, tuple((raw or {}).values())),
            guarded=guarded(asked.project),
            facts=facts or {},
            keys=keys or {},
            connection=connection,
            insist=asked.boundary.enforcement == "strict",
        )
        try:
            outcome = confine(
                visit,
                project=asked.project,
                workspace=asked.workspace,
                layers=asked.layers,
                canary=canary(asked.project),
                listen=asked.listen,
            )
        except DiskFull:
            if kept and _is_large(writes[-1]):
                remove(kept)
            raise
    if kept:
        remove(kept)
    return outcome


def _is_large(held: Held) -> bool:
    """Whether a checkpoint takes more of the disk, or is deeper, than any honest one."""
    try:
        return paths.size(held) > RESERVE_BYTES
    except BoundaryError:
        return True


def _hold_raw(raw: Mapping[str, Path], stack: ExitStack) -> dict[str, Held]:
    """The name stays: it tells the format."""
    return {
        f"raw:{role}": stack.enter_context(paths.hold_file(path, f"{_RAW}/{role}/{path.name}"))
        for role, path in raw.items()
    }


def checkpoint(asked: Request, progress: str = "") -> Path | None:
    """A folder that outlives a killed run, for stages that can go on where they stopped; gone after one that
    ends well.

    It lies in AIRLOCK_HOME, by workspace, room and what is being made: another clone is at another point of
    another release, and no open stage can be called like a release, whose sums without noise lie here.
    """
    if asked.zone == "sensitive":
        return None
    clone = hashlib.sha256(os.fsencode(asked.workspace)).hexdigest()[:16]
    made = hashlib.sha256(progress.encode()).hexdigest()[:32] if progress else asked.stage.name
    folder = asked.project.checkpoints / clone / asked.zone / made
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def watched(asked: Request, raw: tuple[Path, ...] = ()) -> tuple[Path, ...]:
    """Where records are: the recorder tells whether any of it was opened."""
    places = [
        *registry.raw_paths(asked.project),
        *raw,
        asked.workspace / "data/raw",
        asked.workspace / "data/sealed",
    ]
    return tuple(path for path in dict.fromkeys(places) if path.exists())


def guarded(home: Project) -> tuple[Path, ...]:
    """Keys and ledgers: no stage has any business there."""
    places = (home.keys, home.registry, *(home.folder / name for name in ("ledger.db", "scratch.db")))
    return tuple(path for path in places if path.exists())


@contextmanager
def open_desk(asked: Request) -> Iterator[Desk]:
    """Open and hash what the stage may read; staging for the outs and a private TMPDIR, both gone afterwards.

    What a release stage stages is small and goes to tmpfs. A sensitive stage stages ciphertext, as large as
    the data: it goes to AIRLOCK_HOME, so that memory does not grow with the number of records.
    """
    memory, home = memory_folder(), asked.project.folder
    for folder in (memory, home):
        leftovers.sweep_folder(folder)
    names = (*asked.stage.deps, *pipelines(Workspace(asked.workspace)), "params.yaml", *asked.code.stages)
    prefix = f"airlock-{os.getpid()}-"
    with paths.hold(asked.workspace, names) as found:
        held = {name: _trusted(one) for name, one in found.items()}
        _check_unchanged(asked, held["params.yaml"])
        stamped = {name: _stamps(name, one) for name, one in held.items()}
        hashed = {name: paths.hashes(one, compiled=not zones.is_code(name)) for name, one in held.items()}
        if asked.code == of_workspace(asked.workspace):
            lock.check(asked.workspace, asked.stage, hashed)
        staging = Path(tempfile.mkdtemp(prefix=prefix, dir=memory if asked.zone == "release" else home))
        scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=memory))
        try:
            yield Desk(held, hashed, stamped, staging, scratch)
        finally:
            remove(staging)
            remove(scratch)


def _trusted(one: Held) -> Held:
    """The installed tool's own compiled modules may be read: whoever can change those can change the tool.

    Where the tool is not installed but lies in the workspace, nobody's may.
    """
    return replace(one, hidden=()) if one.path.is_relative_to(TOOL) and not bytecode([TOOL]) else one


def _check_unchanged(asked: Request, held: Held) -> None:
    """What was checked is what is held."""
    if parse_params(paths.text_of(held)) != asked.params:
        raise BoundaryError("params.yaml changed while the stage was being started: run it again")


def seal_keys(keyring: Keyring, facts: Facts, generation: int | None) -> dict[str, bytes]:
    """The keys of the sealed files, by the names under which a room has them."""
    contexts = seal_contexts(facts, generation=generation)
    return {"seal:" + role: keyring.seal_key(context) for role, context in contexts.items()}
