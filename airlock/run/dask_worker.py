"""`airlock worker`: one worker of a Dask cluster whose work happens behind the wall.

Two processes: the Dask worker outside speaks to the cluster and holds no record; a confined one beside it
holds the seal key and the sealed file, has no network, and answers with exact sums. They talk over one socket
pair (airlock/inside/connection.py).
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import socket
import tempfile
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from distributed import Worker
from distributed.diagnostics.plugin import WorkerPlugin

from airlock.errors import AirlockError, StageFailed
from airlock.owner.home import canary, project
from airlock.owner.keys import Keyring
from airlock.params import load_params
from airlock.run import dask_broker, limits, orders
from airlock.run.code import STAGES, digest, of_workspace
from airlock.run.handover import Visit, confine, memory_folder
from airlock.run.paths import hashes, hold
from airlock.run.stage import seal_keys
from airlock.wall.layers import choose

MODULE = "stages.release.cluster"
FOLDER = "data/sealed"


class ConfinedPlugin(WorkerPlugin):
    """Passes requests to the confined process, one at a time, and starts it when it is needed: it holds one sealed
    file open and is made of one code, so that other records (another night's, for one) and other code need another
    process.
    """

    name = dask_broker.PLUGIN

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._lock = threading.Lock()
        self._process: _Confined | None = None

    def answer(self, request: bytes, first: int, last: int, code: str) -> bytes:
        """The sums over a range of chunks, by a process that is made of `code`."""
        with self._lock:
            if self._process and not self._process.fits(request, code):
                self._process.close()
                self._process = None
            if self._process is None:
                self._process = _Confined(self._workspace, request, code)
            try:
                return self._process.ask(request, first, last)
            except AirlockError as error:
                self._process = None
                raise StageFailed(str(error)) from None

    def teardown(self, worker: Worker) -> None:
        """End the confined process."""
        if self._process:
            self._process.close()


class _Confined:
    """The process behind the wall. It asks for work; the answer to its last message is the next request."""

    def __init__(self, workspace: Path, request: bytes, code: str) -> None:
        self._requests: queue.Queue[bytes] = queue.Queue()
        self._answers: queue.Queue[bytes | AirlockError] = queue.Queue()
        self._sent, self._facts, self._code = b"", _facts(request), code
        threading.Thread(target=self._live, args=(workspace,), daemon=True).start()
        self._receive()

    def fits(self, request: bytes, code: str) -> bool:
        """Whether a request is for the records that this process holds, and the code that it is made of."""
        return code == self._code and (request == self._sent or _facts(request) == self._facts)

    def ask(self, request: bytes, first: int, last: int) -> bytes:
        """Send a request, or only its range where the rest is as before, and wait."""
        self._requests.put(b"%d:%d;" % (first, last) + (b"" if request == self._sent else request))
        self._sent = request
        return self._receive()

    def close(self) -> None:
        """An empty request ends it."""
        self._requests.put(b"")

    def _receive(self) -> bytes:
        answer = self._answers.get()
        if isinstance(answer, AirlockError):
            raise answer
        return answer

    def _exchange(self, answer: bytes) -> bytes:
        self._answers.put(answer)
        return self._requests.get()

    def _live(self, workspace: Path) -> None:
        try:
            self._run(workspace)
            self._answers.put(StageFailed("the confined process of the worker ended"))
        except AirlockError as error:
            self._answers.put(error)
        except Exception as error:  # the class is all that may leave this machine
            self._answers.put(
                StageFailed(f"the confined process of the worker failed ({type(error).__name__})")
            )

    def _run(self, workspace: Path) -> None:
        home, params = project(workspace), load_params(workspace / "params.yaml")
        facts, generation = orders.read_facts(workspace)
        if json.loads(json.dumps(asdict(facts))) != self._facts:
            raise StageFailed(
                "the worker's sealed records are not those of the release: "
                "run `dvc pull --remote sealed` in its workspace"
            )
        code = of_workspace(workspace)
        with (
            tempfile.TemporaryDirectory(dir=memory_folder()) as scratch,
            hold(workspace, (FOLDER, *code.stages)) as held,
        ):
            if digest(hashes(held[STAGES], compiled=False)["sha256"]) != self._code:
                raise StageFailed(
                    "the worker's code is not the release's: "
                    "check out the same commit in its workspace, and install the same version of Airlock"
                )
            visit = Visit(
                stage="worker",
                zone="release",
                module=MODULE,
                code=code,
                params=params,
                paths={FOLDER: held[FOLDER].path},
                reads=tuple(held.values()),
                writes=(),
                scratch=Path(scratch),
                limits=limits.of(params.boundary),
                keys=seal_keys(Keyring.load(home), facts, generation),
                connection=self._exchange,
            )
            layers = choose(params.boundary.enforcement, zone="release")
            confine(
                visit,
                project=home,
                workspace=workspace,
                layers=layers,
                canary=canary(home),
                listen=lambda event: None,
            )


def _facts(request: bytes) -> dict[str, Any]:
    facts: dict[str, Any] = dask_broker.header(request)["facts"]
    return facts


def serve(address: str, workspace: Path) -> None:
    """Join the cluster at `address` and work until the scheduler or the user ends it."""
    orders.read_facts(workspace)
    Keyring.load(project(workspace))
    security = dask_broker.security(project(workspace), "worker")
    asyncio.run(_serve(address, workspace, security))


async def _serve(address: str, workspace: Path, security: Any) -> None:
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        async with Worker(
            address,
            name=f"{socket.gethostname()}-{os.getpid()}",
            nthreads=1,
            memory_limit=0,
            resources={dask_broker.RESOURCE: 1},
            plugins=(ConfinedPlugin(workspace),),
            security=security,
            dashboard=False,
            local_directory=folder,
        ) as worker:
            await worker.finished()
