"""The same release, bit for bit, from this machine and from a cluster of separate processes."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import distributed
import pyarrow.parquet as pq
import pytest

from airlock.errors import ParamsError
from airlock.ledger import Ledger
from airlock.run.dask_broker import check_address
from flows.server import free_port
from tests.conftest import Workspace, make_workspace
from tests.support import clinic
from tests.support.certificates import make_certificates
from tests.support.station import wait_for

pytestmark = pytest.mark.xdist_group("cluster")
ROWS = 60_000
OUT = "data/released/release"


@dataclass
class Cluster:
    """A scheduler and workers, each a process of its own."""

    workspace: Workspace
    address: str
    environment: dict[str, str]
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        log = (self.workspace.home / "cluster.log").open("ab")
        self.processes.append(
            subprocess.Popen(command, cwd=self.workspace.root, env=self.environment, stdout=log, stderr=log)
        )
        return self.processes[-1]

    def grow(self, workers: int) -> None:
        while len(self.processes) <= workers:
            self.start("airlock", "worker", self.address)

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A private population of fifteen chunks, ingested; nothing is released yet."""
    made = make_workspace(tmp_path_factory.mktemp("sealed"))
    (made.root / "data/schemas/clinic.yaml").write_text(clinic.SCHEMA)
    pq.write_table(clinic.records(ROWS), made.home / "clinic.parquet")
    made.run(
        "airlock",
        "add",
        str(made.home / "clinic.parquet"),
        "--name",
        "clinic",
        "--epsilon",
        "2",
        "--delta",
        "1e-6",
    )
    made.set("dataset", "clinic")
    made.set("release.delta", 1.0e-06)
    made.run("dvc", "repro", "--single-item", "ingest", "relevance")
    return made


@pytest.fixture(scope="module")
def cluster(sealed: Workspace) -> Iterator[Cluster]:
    port = free_port()
    made = Cluster(sealed, f"tcp://127.0.0.1:{port}", sealed.environment)
    try:
        made.start("dask", "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
        yield made
    finally:
        made.stop()


@dataclass(frozen=True)
class Made:
    """A release in a home of its own, in which it is the first."""

    home: Path
    digest: str


def release(
    sealed: Workspace, engine: str, environment: dict[str, str] | None = None, mechanism: str = "coefficients"
) -> Made:
    """Make the release for the first time, whatever was made before: keys and ledger are as they were after ingest."""
    process, made = begin(sealed, engine, environment, mechanism)
    output = process.communicate(timeout=300)[0]
    assert process.returncode == 0, output + (sealed.home / "cluster.log").read_text()[-3000:]
    return finish(sealed, made)


def begin(
    sealed: Workspace, engine: str, environment: dict[str, str] | None = None, mechanism: str = "coefficients"
) -> tuple[subprocess.Popen[str], Path]:
    home = sealed.home / f"home-{len(list(sealed.home.glob('home-*')))}"
    shutil.copytree(sealed.home / "airlock", home)
    shutil.rmtree(sealed.root / OUT, ignore_errors=True)
    text = (sealed.root / "params.yaml").read_text().splitlines()
    address = "null" if engine == "local" else f'"{engine}"'
    changed = {
        "  mechanism:": f"  mechanism: {mechanism}",
        "  engine:": f"  engine: {'local' if engine == 'local' else 'dask'}",
        "  address:": f"  address: {address}",
    }
    lines = [next((new for old, new in changed.items() if line.startswith(old)), line) for line in text]
    (sealed.root / "params.yaml").write_text("\n".join(lines) + "\n")
    settings = sealed.environment | (environment or {}) | {"AIRLOCK_HOME": str(home)}
    command = ["airlock", "run", "release"]
    return subprocess.Popen(
        command, cwd=sealed.root, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ), home


def finish(sealed: Workspace, home: Path) -> Made:
    files = sorted((sealed.root / OUT).iterdir())
    assert {file.name for file in files} == {"release.json", "release.safetensors"}
    return Made(home, hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest())


@pytest.fixture(scope="module")
def here(sealed: Workspace) -> Made:
    """The release as this machine makes it."""
    return release(sealed, "local")


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_any_number_of_workers_gives_the_same_bits(
    sealed: Workspace, cluster: Cluster, here: Made, workers: int
) -> None:
    cluster.grow(workers)
    wait_until_joined(cluster, workers)
    assert release(sealed, cluster.address).digest == here.digest


def test_rounds_that_depend_on_a_head_give_the_same_bits(sealed: Workspace, cluster: Cluster) -> None:
    cluster.grow(2)
    wait_for(lambda: joined(cluster) >= 2, "two workers join")
    iterated = "coefficients-iterated"
    assert (
        release(sealed, cluster.address, mechanism=iterated).digest
        == release(sealed, "local", mechanism=iterated).digest
    )


def test_a_killed_worker_changes_neither_the_bits_nor_the_bill(
    sealed: Workspace, cluster: Cluster, here: Made
) -> None:
    cluster.grow(4)
    wait_until_joined(cluster, 4)
    workers = {f"-{process.pid}": process for process in cluster.processes[1:]}
    # Stopped, they are given work and do not do it: so it is certain that the kill comes before it is done.
    for worker in workers.values():
        os.kill(worker.pid, signal.SIGSTOP)
    process, home = begin(sealed, cluster.address)
    with distributed.Client(cluster.address, set_as_default=False) as client:
        names = {
            place: info["name"] for place, info in client.scheduler_info(n_workers=-1)["workers"].items()
        }
        busy = wait_for(
            lambda: next((place for place, tasks in client.processing().items() if tasks), None),
            "a worker has work to do",
        )
        victim = workers.pop(next(suffix for suffix in workers if names[busy].endswith(suffix)))
        victim.kill()
        victim.wait()
        for worker in workers.values():
            os.kill(worker.pid, signal.SIGCONT)
        output = process.communicate(timeout=300)[0]
    assert process.returncode == 0, output
    assert finish(sealed, home).digest == here.digest
    (database,) = home.glob("*/ledger.db")
    kinds = [entry.kind for entry in Ledger.open(f"sqlite:///{database}", create=False).history("clinic")]
    assert (kinds.count("reserve"), kinds.count("commit")) == (1, 1)


def test_over_tls_with_certificates_and_not_without(sealed: Workspace, here: Made, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    roles = {"SCHEDULER", "WORKER", "CLIENT"}
    tls = {f"DASK_DISTRIBUTED__COMM__TLS__{role}__CERT": str(certificates.certificate) for role in roles}
    tls |= {f"DASK_DISTRIBUTED__COMM__TLS__{role}__KEY": str(certificates.key) for role in roles}
    tls["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"] = str(certificates.authority)
    port = free_port()
    cluster = Cluster(sealed, f"tls://127.0.0.1:{port}", sealed.environment | tls)
    try:
        cluster.start(
            "dask", "scheduler", "--protocol", "tls", "--host", f"tls://127.0.0.1:{port}", "--no-dashboard"
        )
        cluster.grow(1)
        assert release(sealed, cluster.address, tls).digest == here.digest
        bare, _ = begin(sealed, cluster.address)
        assert "tls:// needs certificates" in bare.communicate(timeout=300)[0]
        assert bare.returncode == 2
    finally:
        cluster.stop()


@pytest.mark.parametrize(
    "address",
    [None, "", "tcp://10.0.0.7:8786", "tcp://scheduler:8786", "tls://scheduler", "http://127.0.0.1:80", "x"],
)
def test_sums_without_noise_never_leave_in_the_clear(address: str | None) -> None:
    with pytest.raises(ParamsError, match=r"release\.address"):
        check_address(address)


@pytest.mark.parametrize(
    "address",
    ["tls://scheduler.example.org:8786", "tcp://127.0.0.1:8786", "tcp://localhost:8786", "tcp://[::1]:8786"],
)
def test_tls_and_loopback_are_fine(address: str) -> None:
    assert check_address(address) == address


def wait_until_joined(cluster: Cluster, workers: int) -> None:
    wait_for(lambda: joined(cluster) == workers, f"{workers} workers join")


def joined(cluster: Cluster) -> int:
    with distributed.Client(cluster.address, set_as_default=False, timeout=60) as client:
        return len(client.scheduler_info(n_workers=-1)["workers"])
