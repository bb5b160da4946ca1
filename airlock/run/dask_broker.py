"""The broker's side of `release.engine: dask`: sums of chunks from the workers of a cluster.

What travels are questions (public) and exact partial sums without noise (not public): over TLS with
certificates on both sides, on one machine too, since a scheduler runs what anyone sends who can connect to
it. Records and keys do not travel: every worker opens its own copy of the sealed file with its own keyring.
"""

from __future__ import annotations

import importlib
import json
import math
import queue
import threading
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from airlock.errors import AirlockError, ParamsError, StageFailed
from airlock.owner import certificates
from airlock.owner.home import Project
from airlock.params import ReleaseParams

RESOURCE = "airlock"
PLUGIN = "airlock"
LOOK_SECONDS = 1.0
RESERVATION_STAYS = (
    "what was reserved stays reserved: the next run makes the same release and pays nothing more"
)
# A lost worker costs at most one task; an answer is as large as the sums, however many chunks it covers.
TASKS_PER_WORKER, CHUNKS_PER_TASK = 8, 256

# What a result is kept in: memory. No spilling to disk, no page that shows tasks, no scaling, no profile.
QUIET_SETTINGS: dict[str, Any] = {
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.profile.enabled": False,
    "distributed.worker.http.routes": [],
    "distributed.scheduler.http.routes": [],
    "distributed.scheduler.dashboard.status.task-stream-length": 0,
    "distributed.admin.log-length": 0,
}


def check_address(address: str | None, source: str = "params.yaml: release.address") -> str:
    """An address over which exact sums may travel.

    Raises:
        ParamsError: there is none, or it is not TLS.
    """
    if not address:
        raise ParamsError(
            f"{source} is missing: release.engine 'dask' needs the scheduler's address, tls://HOST:PORT"
        )
    parts = urlsplit(address)
    if parts.scheme == "tls" and parts.hostname and parts.port:
        return address
    raise ParamsError(
        f"{source} '{address}': exact sums travel over tls://HOST:PORT only, on this machine too; "
        f"`{certificates.MAKE_COMMAND}` makes the certificates"
    )


def security(home: Project, role: str) -> Any:
    """TLS with certificates on both sides: those of Dask's own configuration, else the project's."""
    package, own = distributed(), certificates.of(home)
    found = package.Security(require_encryption=True)
    if found.tls_ca_file and getattr(found, f"tls_{role}_cert"):
        return found
    if not own.holds(role):
        raise ParamsError(
            f"a Dask {role} needs certificates: `{certificates.MAKE_COMMAND}` makes them, or copy {own.folder.name}/ "
            "from the machine that has them (docs/scale.md)"
        )
    files = {f"tls_{role}_cert": str(own.certificate(role)), f"tls_{role}_key": str(own.key(role))}
    return package.Security(require_encryption=True, tls_ca_file=str(own.authority), **files)


def distributed() -> Any:
    """The package, set to be quiet; imported when needed (half a second), and only half typed."""
    package = importlib.import_module("distributed")
    importlib.import_module("dask.config").set(QUIET_SETTINGS)
    return package


class DaskCluster:
    """Answers a stage's questions from a cluster; an `Exchange` for the granted connection.

    Workers answer with the very code that the stage runs (`airlock.run.code.digest`), or not at all: the receipt names
    one.
    """

    def __init__(self, release: ReleaseParams, home: Project, code: str) -> None:
        self.address, self._code = check_address(release.address), code
        self._patience = release.cluster_timeout
        self._security = security(home, "client")
        self._aftermath = "nothing was reserved"

    def __call__(self, message: bytes) -> bytes:
        """One pass: the sums over all chunks that the message names, added up as they come."""
        ranges = _ranges(int(header(message)["chunks"]), self._wait_for_workers())
        place = {"resources": {RESOURCE: 1}, "pure": False}
        # As a task of its own the message is sent to a worker once, and made again if that worker is lost.
        request = self._client.submit(same, message, **place)
        ends = zip(*ranges, strict=True)
        futures = self._client.map(part, *ends, request=request, code=self._code, **place)
        total: dict[str, NDArray[np.int64]] = {}
        for answer in self._answers(futures):
            _add(total, answer)
        return _pack(total)

    def greet(self) -> None:
        """Wait until the scheduler and a worker have answered: nothing is reserved before.

        Raises:
            StageFailed: one of them stays silent.
        """
        self._wait_for_workers()
        asked = self._client.submit(same, b"", resources={RESOURCE: 1}, pure=False)
        self._patiently(partial(asked.result, timeout=LOOK_SECONDS), time.monotonic() + self._patience)
        self._aftermath = RESERVATION_STAYS

    @cached_property
    def _client(self) -> Any:
        """Connected when it is first asked for, and kept."""
        try:
            return distributed().Client(
                self.address,
                security=self._security,
                set_as_default=False,
                name="airlock",
                timeout=self._patience,
            )
        except (OSError, TimeoutError):
            raise StageFailed(
                f"no Dask scheduler with our certificates answers at {self.address}: start it "
                "(docs/scale.md), or set release.engine to local"
            ) from None

    def _answers(self, futures: Sequence[Any]) -> Iterator[bytes]:
        """Results as they come, for as long as there is a scheduler and a worker to wait for."""
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for future in futures:
            future.add_done_callback(done.put)
        for _ in futures:
            future = self._patiently(partial(done.get, timeout=LOOK_SECONDS))
            yield self._patiently(partial(future.result, timeout=LOOK_SECONDS))
            future.release()

    def _patiently(self, ask: Callable[[], Any], deadline: float = math.inf) -> Any:
        """The answer to `ask`, which gives up after a second: then it is asked again if that makes sense."""
        seen = time.monotonic()
        while True:
            try:
                return ask()
            except (queue.Empty, TimeoutError):
                seen = time.monotonic() if self._workers() else seen
                if time.monotonic() > min(seen + self._patience, deadline):
                    raise self._alone() from None
            except AirlockError:
                raise
            except (Exception, CancelledError) as error:
                if self._client.status != "running" or isinstance(error, CancelledError):
                    raise self._lost() from None
                raise StageFailed(
                    f"a worker of the cluster failed ({type(error).__name__}): see its log"
                ) from None

    def _workers(self) -> int:
        """How many workers are ours; others may be on the cluster, and are never asked."""
        found: queue.SimpleQueue[Any] = queue.SimpleQueue()
        client = self._client

        def ask() -> None:
            try:
                found.put(client.scheduler_info(n_workers=-1)["workers"].values())
            except Exception:
                found.put(None)

        # A scheduler that is there and says nothing would hold us for ever.
        threading.Thread(target=ask, daemon=True).start()
        try:
            workers = found.get(timeout=self._patience)
        except queue.Empty:
            workers = None
        if workers is None or client.status != "running":
            raise self._lost()
        return sum(1 for worker in workers if worker["resources"].get(RESOURCE))

    def _wait_for_workers(self) -> int:
        deadline = time.monotonic() + self._patience
        while not (workers := self._workers()):
            if time.monotonic() > deadline:
                raise self._alone()
            time.sleep(0.2)
        return workers

    def _alone(self) -> StageFailed:
        return StageFailed(
            f"no Airlock worker of the cluster has answered for {self._patience:g} s "
            f"(release.cluster_timeout): start one with `airlock worker {self.address}`; {self._aftermath}"
        )

    def _lost(self) -> StageFailed:
        return StageFailed(
            f"the Dask scheduler at {self.address} was lost: start it and its workers again; "
            f"{self._aftermath}"
        )


def same(message: bytes) -> bytes:
    """Itself."""
    return message


def part(first: int, last: int, request: bytes, code: str) -> bytes:
    """On a worker: the sums over a range of chunks, from the confined process beside it, if that is made of `code`."""
    answer: bytes = distributed().get_worker().plugins[PLUGIN].answer(request, first, last, code)
    return answer


def _ranges(chunks: int, workers: int) -> list[tuple[int, int]]:
    step = max(1, min(CHUNKS_PER_TASK, chunks // (TASKS_PER_WORKER * workers)))
    return [(first, min(first + step, chunks)) for first in range(0, chunks, step)]


def header(message: bytes) -> dict[str, Any]:
    """What a message says about itself, before its tensors."""
    length = int.from_bytes(message[:8], "little")
    found: dict[str, Any] = json.loads(json.loads(message[8 : 8 + length])["__metadata__"]["header"])
    return found


def _add(total: dict[str, NDArray[np.int64]], answer: bytes) -> None:
    from safetensors.numpy import load

    parts: Mapping[str, NDArray[np.int64]] = load(answer)
    for name, value in parts.items():
        total[name] = total[name] + value if name in total else value


def _pack(total: Mapping[str, NDArray[np.int64]]) -> bytes:
    from safetensors.numpy import save

    return bytes(save(dict(total), {"header": "{}"}))
