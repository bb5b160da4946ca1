"""The broker's side of `release.engine: dask`: sums of chunks from the workers of a cluster.

What travels are questions (public) and exact partial sums without noise (not public): over TLS with client certificates, or on the
loopback interface. Records and keys do not travel: every worker opens its own copy of the sealed file with its own keyring.
"""

from __future__ import annotations

import importlib
import ipaddress
import json
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ParamsError, StageFailed
from airlock.params import ReleaseParams

RESOURCE = "airlock"
PLUGIN = "airlock"
WAIT_SECONDS = 60
# A lost worker costs at most one task; a task's answer is as large as the sums, however many chunks it covers.
TASKS_PER_WORKER, CHUNKS_PER_TASK = 8, 256

# What a result is kept in: memory. No spilling to disk, no page that shows tasks, no automatic scale or profile.
QUIET: dict[str, Any] = {
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
        ParamsError: there is none, or it is neither TLS nor loopback.
    """
    if not address:
        raise ParamsError(
            f"{source} is missing: release.engine 'dask' needs the scheduler's address, tls://HOST:PORT"
        )
    parts = urlsplit(address)
    if parts.scheme == "tls" and parts.port:
        return address
    if parts.scheme == "tcp" and parts.port and is_loopback(parts.hostname or ""):
        return address
    raise ParamsError(
        f"{source} '{address}': exact sums leave this machine over tls://HOST:PORT only (tcp://127.0.0.1:PORT stays on it)"
    )


def is_loopback(host: str) -> bool:
    """Whether a host is this machine for certain; names are not looked up."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def security(address: str) -> Any:
    """TLS from Dask's own configuration (distributed.comm.tls), with certificates on both sides; None on loopback."""
    if not address.startswith("tls://"):
        return None
    found = distributed().Security(require_encryption=True)
    if not (found.tls_ca_file and found.tls_client_cert):
        raise ParamsError(
            "tls:// needs certificates: set distributed.comm.tls.ca-file, client.cert and client.key (docs/scale.md)"
        )
    return found


def distributed() -> Any:
    """The package, set to be quiet; imported when needed (half a second), and only half typed."""
    package = importlib.import_module("distributed")
    importlib.import_module("dask.config").set(QUIET)
    return package


class Cluster:
    """Answers a stage's questions from a cluster; an `Exchange` for the granted connection."""

    def __init__(self, release: ReleaseParams) -> None:
        self.address = check_address(release.address)
        self._security = security(self.address)

    def __call__(self, message: bytes) -> bytes:
        """One pass: the sums over all chunks that the message names."""
        return _pass(self._client, message)

    @cached_property
    def _client(self) -> Any:
        """Connected for the first pass, and kept for the others."""
        try:
            return distributed().Client(
                self.address, security=self._security, set_as_default=False, name="airlock", timeout="20s"
            )
        except (OSError, TimeoutError):
            raise StageFailed(
                f"no Dask scheduler answers at {self.address}: start it, or set release.engine to local"
            ) from None


def _pass(client: Any, message: bytes) -> bytes:
    """Ask for ranges of chunks and add up what comes, in the order in which it comes."""
    ranges = _ranges(int(header(message)["chunks"]), _wait_for_workers(client))
    place = {"resources": {RESOURCE: 1}, "pure": False}
    # As a task of its own the message is sent to a worker once, and made again if that worker is lost.
    request = client.submit(same, message, **place)
    futures = client.map(part, *zip(*ranges, strict=True), request=request, **place)
    total: dict[str, NDArray[np.int64]] = {}
    for future, answer in distributed().as_completed(futures, loop=client.loop, with_results=True):
        _add(total, answer)
        future.release()
    return _pack(total)


def same(message: bytes) -> bytes:
    """Itself."""
    return message


def part(first: int, last: int, request: bytes) -> bytes:
    """On a worker: the sums over a range of chunks, from the confined process beside it."""
    answer: bytes = distributed().get_worker().plugins[PLUGIN].answer(request, first, last)
    return answer


def _wait_for_workers(client: Any) -> int:
    """How many of the workers are ours; others may be on the cluster, and are never asked."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        if ours := [worker for worker in workers if worker["resources"].get(RESOURCE)]:
            return len(ours)
        if time.monotonic() > deadline:
            raise StageFailed(
                "no Airlock worker has joined the cluster: start one with `airlock worker ADDRESS`"
            )
        time.sleep(0.2)


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
