"""`airlock run STAGE`: the broker outside the sandbox, and the only one that touches keys, ledger and network.

Order of events: check parameters and taint -> price and reserve -> derive the keys that this one stage needs ->
confine and run -> check, archive and commit releases -> publish the declared outs -> sign the receipt.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airlock.errors import BoundaryError
from airlock.evidence import receipts, zones
from airlock.evidence.revisions import Workspace, load_graph, pipelines
from airlock.evidence.testimony import describe
from airlock.inside.sealed import seal_contexts
from airlock.ledger import Ledger
from airlock.owner import registry
from airlock.owner.home import Project, canary, project
from airlock.owner.keys import Keyring, signer
from airlock.params import Params, load_params
from airlock.privacy.plan import Facts
from airlock.records import handles
from airlock.run import budget
from airlock.run import orders as broker
from airlock.run.code import Code, of_workspace
from airlock.run.handover import Listener, Visit, confine, memory_folder
from airlock.run.outs import publish
from airlock.wall.layers import Layer, choose
from airlock.wall.sandbox import Outcome

if TYPE_CHECKING:
    from airlock.run.dask_broker import Cluster


class Run:
    """One run of one stage."""

    def __init__(
        self,
        name: str,
        *,
        workspace: Path,
        listen: Listener = lambda event: None,
        home: Project | None = None,
        code: Code | None = None,
    ) -> None:
        self.workspace = workspace.resolve()
        self.params: Params = load_params(self.workspace / "params.yaml")
        self.graph = load_graph(self.workspace)
        self.stage = self.graph.stage(name)
        zones.check(self.graph)
        self.zone = str(self.stage.zone)
        self.project: Project = home or project(self.workspace)
        self.code = code or of_workspace(self.workspace)
        self.layers: frozenset[Layer] = choose(self.params.boundary.enforcement, zone=self.zone)
        self.listen = listen
        self.orders: list[broker.Order] = []
        self.outcome: Outcome | None = None
        self.ledger: Ledger | None = None
        self.connection: Cluster | None = None
        self.raw: dict[str, Path] = {}
        self.fingerprints: dict[str, str] = {}

    def __call__(self) -> Path:
        """Run to the end and return the receipt's path."""
        sign = signer(self.project)
        receipts.pin(self.workspace, sign.public_key, owner=self.zone != "open")
        with self._folders() as (staging, scratch):
            {"sensitive": self._sensitive, "release": self._release, "open": self._open}[self.zone](
                staging, scratch
            )
            publish(staging, self.stage.outs, self.workspace)
        return receipts.write(self.workspace, describe(self), sign, archive=self.project.receipts)

    def _sensitive(self, staging: Path, scratch: Path) -> None:
        keyring = Keyring.load(self.project)
        found = handles.of(self.workspace, self.params.dataset)
        self.fingerprints = {role: handle.fingerprint for role, handle in found.items()}
        facts = handles.public_facts(self.workspace, self.params)
        keys = seal_keys(keyring, facts, keyring.generation) | {"split": keyring.split_key(facts.population)}
        told = {"facts": asdict(facts), "generation": keyring.generation}
        spool = self.project.spool
        try:
            for role, handle in found.items():
                self.raw[f"raw:{role}"] = registry.check(
                    self.project, keyring, handle, spool=spool, told=self._fetching(role)
                )
            self.outcome = self._confine(staging, scratch, paths=self.raw, keys=keys, facts=told)
        finally:
            shutil.rmtree(spool, ignore_errors=True)

    def _fetching(self, role: str) -> Callable[[int, int], None]:
        return lambda done, total: self.listen(
            {"kind": "progress", "label": f"fetching {role}", "done": done, "total": total}
        )

    def _release(self, staging: Path, scratch: Path) -> None:
        keyring, (facts, generation) = Keyring.load(self.project), broker.read_facts(self.workspace)
        self.ledger = broker.open_ledger(self.project, public=facts.public)
        self.connection = self._cluster()
        budget.check(self.project, self.workspace, self.params, self.stage)
        orders = broker.take_orders(
            self.stage,
            self.graph,
            params=self.params,
            facts=facts,
            ledger=self.ledger,
            workspace=self.workspace,
            project=self.project,
        )
        self.orders = [broker.finish(order, project=self.project, ledger=self.ledger) for order in orders]
        for order in self.orders:
            if order.status == "committed":
                broker.replay(order, project=self.project, staging=staging)
            elif order.status == "none":
                broker.write_none(order, facts=facts, staging=staging)
        pending = [order for order in self.orders if order.pending]
        if not pending:
            return
        broker.start(pending, self.ledger)
        noise = {order.out: keyring.noise_key(order.release_id, scratch=facts.public) for order in pending}
        ids = {order.out: order.release_id for order in pending}
        self._make(ids, facts, seal_keys(keyring, facts, generation), noise, staging, scratch)
        for order in pending:
            broker.settle(order, project=self.project, ledger=self.ledger, staging=staging)

    def _make(
        self,
        ids: Mapping[str, str],
        facts: Facts,
        keys: Mapping[str, bytes],
        noise: Mapping[str, bytes],
        staging: Path,
        scratch: Path,
    ) -> None:
        """Let the confined stage make releases, with the keys of the sealed files and one noise key for each out."""
        told = {"facts": asdict(facts), "releases": {out: {"id": one} for out, one in ids.items()}}
        keys = {**keys, **{"noise:" + out: key for out, key in noise.items()}}
        self.outcome = self._confine(staging, scratch, keys=keys, facts=told, connection=self.connection)

    def _cluster(self) -> Cluster | None:
        """The one connection that a release stage can be granted; a bad address is told before anything is reserved."""
        if self.params.release.engine == "local":
            return None
        from airlock.run.dask_broker import Cluster

        return Cluster(self.params.release)

    def _open(self, staging: Path, scratch: Path) -> None:
        self.outcome = self._confine(staging, scratch, facts=self._public_facts())

    def _public_facts(self) -> Mapping[str, Any]:
        """What the report page tells about the budget and the boundary; only that stage is given it."""
        if self.stage.name != "report":
            return {}
        from airlock.evidence.audit import audit
        from airlock.evidence.page import page_facts
        from airlock.owner.checks import balance

        return page_facts(audit(self.workspace).stages, self.graph, balance(self.workspace))

    def _confine(self, staging: Path, scratch: Path, **given: Any) -> Outcome:
        declared = (*self.stage.deps, *pipelines(Workspace(self.workspace)), "params.yaml")
        deps = {dep: self._resolve(dep) for dep in declared}
        extra: Mapping[str, Path] = given.pop("paths", {})
        outs = {out: staging / out for out in self.stage.outs}
        for path in outs.values():
            path.parent.mkdir(parents=True, exist_ok=True)
        kept = self._checkpoint()
        visit = Visit(
            stage=self.stage.name,
            zone=self.zone,
            module=self.code.module_of(self.stage.name, self.stage.module),
            code=self.code,
            params=self.params,
            paths={**deps, **extra, **outs, **kept},
            reads=(*deps.values(), *extra.values()),
            writes=(staging, *kept.values()),
            scratch=scratch,
            watch=self.watched(),
            **given,
        )
        outcome = confine(
            visit,
            project=self.project,
            workspace=self.workspace,
            layers=self.layers,
            canary=canary(self.project),
            listen=self.listen,
        )
        for path in kept.values():
            shutil.rmtree(path, ignore_errors=True)
        return outcome

    def _checkpoint(self) -> dict[str, Path]:
        """A folder that outlives a killed run, for stages that can go on where they stopped; gone after one that ends well.

        An open stage's is in the workspace. A release stage's holds noisy iterates, and stays in AIRLOCK_HOME until they are released.
        """
        if self.zone == "sensitive":
            return {}
        place = self.project.folder if self.zone == "release" else self.workspace / ".airlock"
        folder = place / "checkpoints" / self.stage.name
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {"checkpoint": folder}

    def watched(self) -> tuple[Path, ...]:
        """Where records are: the recorder tells whether any of it was opened."""
        places = [
            *registry.raw_paths(self.project),
            *self.raw.values(),
            self.workspace / "data/raw",
            self.workspace / "data/sealed",
        ]
        return tuple(path for path in dict.fromkeys(places) if path.exists())

    def _resolve(self, dep: str) -> Path:
        """The real place of a dep, which must be the declared one: a link could lead to records."""
        declared, real = self.workspace / dep, (self.workspace / dep).resolve()
        if not real.exists():
            raise BoundaryError(f"stage '{self.stage.name}': dep '{dep}' does not exist: run `dvc repro`")
        if real != declared:
            raise BoundaryError(
                f"stage '{self.stage.name}': dep '{dep}' is a link: replace it by the file itself"
            )
        return real

    @contextmanager
    def _folders(self) -> Iterator[tuple[Path, Path]]:
        """Staging for the outs and a private TMPDIR, both gone afterwards.

        What a release stage stages is small and goes to tmpfs. A sensitive stage stages ciphertext, as large as the data:
        it goes to the workspace's own file system, so that memory does not grow with the number of records.
        """
        memory = memory_folder()
        beside = self.workspace / ".airlock"
        beside.mkdir(exist_ok=True)
        for folder in (memory, beside, self.project.folder):
            _sweep(folder)
        prefix = f"airlock-{os.getpid()}-"
        staging = Path(tempfile.mkdtemp(prefix=prefix, dir=memory if self.zone == "release" else beside))
        scratch = Path(tempfile.mkdtemp(prefix=prefix, dir=memory))
        try:
            yield staging, scratch
        finally:
            shutil.rmtree(staging, ignore_errors=True)
            shutil.rmtree(scratch, ignore_errors=True)


def _sweep(folder: Path) -> None:
    """Remove what runs left behind that were killed outright: their process is gone, and nobody else reads it."""
    for path in folder.glob("airlock-*-*"):
        number = path.name.split("-")[1]
        if number.isdigit() and not Path("/proc", number).exists():
            shutil.rmtree(path, ignore_errors=True)


def seal_keys(keyring: Keyring, facts: Facts, generation: int | None) -> dict[str, bytes]:
    """The keys of the sealed files, by the names under which a room has them."""
    contexts = seal_contexts(facts, generation=generation)
    return {"seal:" + role: keyring.seal_key(context) for role, context in contexts.items()}


def run_stage(
    name: str, *, workspace: Path, listen: Callable[[Mapping[str, Any]], None] = lambda event: None
) -> Path:
    """Run one stage behind the wall; see the module's first lines for the order of events."""
    return Run(name, workspace=workspace, listen=listen)()
