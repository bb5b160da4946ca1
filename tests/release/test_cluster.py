"""The same release, bit for bit, from this machine and from a cluster of separate processes."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from airlock.errors import ParamsError
from airlock.ledger import Ledger
from airlock.run.dask_broker import check_address
from flows.server import free_port
from tests.conftest import Workspace, make_workspace
from tests.support import clinic, second_account
from tests.support.certificates import make_certificates
from tests.support.imports import heard, listening
from tests.support.prefect_server import wait_for

if TYPE_CHECKING:
    import distributed

pytestmark = pytest.mark.xdist_group("cluster")
ROWS = 24_000
OUT = "data/released/release"
RELEASE = ("airlock", "run", "release")


@dataclass
class DaskCluster:
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
    """A private population of six chunks, ingested; nothing is released yet."""
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
    made.set("relevance.mode", "off")  # all passes in the one stage that is run here
    made.run("dvc", "repro", "--single-item", "ingest", "relevance")
    made.run("airlock", "keys", "dask")
    return made


def security(sealed: Workspace) -> distributed.Security:
    """What the broker shows to the cluster."""
    import distributed  # here and below: only one process of pytest-xdist needs it

    (folder,) = (sealed.home / "airlock").glob("*/dask")
    files = {"tls_client_cert": folder / "client.pem", "tls_client_key": folder / "client.key"}
    given = {name: str(path) for name, path in (files | {"tls_ca_file": folder / "ca.pem"}).items()}
    return distributed.Security(require_encryption=True, **given)


def start_cluster(sealed: Workspace) -> DaskCluster:
    """A scheduler as `airlock keys dask` says to start one, and no worker yet."""
    port = free_port()
    made = DaskCluster(sealed, f"tls://127.0.0.1:{port}", sealed.environment)
    (folder,) = (sealed.home / "airlock").glob("*/dask")
    files = ["--tls-ca-file", "ca.pem", "--tls-cert", "scheduler.pem", "--tls-key", "scheduler.key"]
    files = [str(folder / word) if "." in word else word for word in files]
    made.start(
        *("dask", "scheduler", "--protocol", "tls", "--host", "127.0.0.1", "--port", str(port)),
        *("--no-dashboard", *files),
    )
    return made


@pytest.fixture(scope="module")
def cluster(sealed: Workspace) -> Iterator[DaskCluster]:
    made = start_cluster(sealed)
    made.environment |= listening(sealed.home / "hook")
    yield made
    made.stop()


@pytest.fixture
def frail(sealed: Workspace) -> Iterator[DaskCluster]:
    """A cluster of its own for a test that breaks it, and little patience with it."""
    made = start_cluster(sealed)
    sealed.set("release.cluster_timeout", 4)
    yield made
    sealed.set("release.cluster_timeout", 60)
    made.stop()


@dataclass(frozen=True)
class Made:
    """A release in a home of its own, in which it is the first."""

    home: Path
    digest: str


def release(
    sealed: Workspace, engine: str, environment: dict[str, str] | None = None, mechanism: str = "coefficients"
) -> Made:
    """Make the release for the first time: keys and ledger are as they were after ingest."""
    home = fresh_home(sealed)
    ask_for(sealed, engine, mechanism)
    given = {**(environment or {}), "AIRLOCK_HOME": str(home)}
    done = sealed.run(*RELEASE, check=False, environment=given)
    assert done.returncode == 0, done.stderr + (sealed.home / "cluster.log").read_text()[-3000:]
    return finish(sealed, home)


def fresh_home(sealed: Workspace) -> Path:
    """As it was after ingest."""
    home = sealed.home / f"home-{len(list(sealed.home.glob('home-*')))}"
    shutil.copytree(sealed.home / "airlock", home)
    # The receipts of a release that was made in another home speak of a ledger that this one never had.
    shutil.rmtree(sealed.root / "receipts/release", ignore_errors=True)
    return home


def ask_for(sealed: Workspace, engine: str, mechanism: str = "coefficients") -> None:
    """Nothing is released yet, and this is to be."""
    shutil.rmtree(sealed.root / OUT, ignore_errors=True)
    sealed.set("release.mechanism", mechanism)
    sealed.set("release.engine", "local" if engine == "local" else "dask")
    sealed.set("release.address", None if engine == "local" else engine)


def begin(sealed: Workspace, engine: str) -> tuple[subprocess.Popen[str], Path]:
    """Come back while it is made."""
    home = fresh_home(sealed)
    return go_on(sealed, home, engine), home


def go_on(sealed: Workspace, home: Path, engine: str) -> subprocess.Popen[str]:
    ask_for(sealed, engine)
    settings = sealed.environment | {"AIRLOCK_HOME": str(home)}
    return subprocess.Popen(
        RELEASE, cwd=sealed.root, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(sealed: Workspace, home: Path) -> Made:
    files = sorted((sealed.root / OUT).iterdir())
    assert {file.name for file in files} == {"release.json", "release.safetensors"}
    return Made(home, hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest())


@pytest.fixture(scope="module")
def here(sealed: Workspace) -> Made:
    """The release as this machine makes it."""
    return release(sealed, "local")


@pytest.fixture(scope="module")
def there(sealed: Workspace, cluster: DaskCluster) -> Made:
    """The release as a cluster of one worker makes it; what broker and worker load for it is heard."""
    cluster.grow(1)
    wait_until_joined(cluster, 1)
    return release(sealed, cluster.address, cluster.environment)


def test_one_worker_gives_the_same_bits(here: Made, there: Made) -> None:
    assert there.digest == here.digest


def test_a_worker_loads_no_module_of_the_stages_outside_the_wall(sealed: Workspace, there: Made) -> None:
    loaded = heard(sealed.home / "hook")
    assert {"airlock.run.dask_worker", "airlock.run.dask_broker", "airlock.run.stage"} <= loaded
    assert not {name for name in loaded if name.partition(".")[0] == "stages"}


@pytest.mark.parametrize("workers", [2, 4])
def test_any_number_of_workers_gives_the_same_bits(
    sealed: Workspace, cluster: DaskCluster, here: Made, workers: int
) -> None:
    cluster.grow(workers)
    wait_until_joined(cluster, workers)
    assert release(sealed, cluster.address).digest == here.digest


def test_a_first_night_gives_the_same_bits(sealed: Workspace, cluster: DaskCluster) -> None:
    """Geometry, coefficients and averages of one night of many; later ones ask the same of fewer."""
    cluster.grow(1)
    wait_until_joined(cluster)
    sealed.set("release.horizon", 4)
    sealed.set("relevance.mode", "auto")
    try:
        assert release(sealed, cluster.address).digest == release(sealed, "local").digest
    finally:
        sealed.set("release.horizon", None)
        sealed.set("relevance.mode", "off")


def test_rounds_that_depend_on_a_head_give_the_same_bits(sealed: Workspace, cluster: DaskCluster) -> None:
    cluster.grow(2)
    wait_until_joined(cluster)
    iterated = "coefficients-iterated"
    assert (
        release(sealed, cluster.address, mechanism=iterated).digest
        == release(sealed, "local", mechanism=iterated).digest
    )


@pytest.fixture
def halved(sealed: Workspace) -> Iterator[None]:
    """Code that asks for half of a Gram matrix, while the test runs."""
    file = sealed.root / "stages/release/passes.py"
    text, exact = file.read_text(), "return sums.multiply(chunk.rows, chunk.rows, (LIMIT, LIMIT))\n"
    assert exact in text
    file.write_text(text.replace(exact, exact.rstrip() + " // 2\n"))
    yield
    file.write_text(text)


def test_a_running_worker_follows_when_code_is_edited(
    sealed: Workspace, cluster: DaskCluster, here: Made, there: Made, halved: None
) -> None:
    """Its process had answered with the code before that; the receipt would have named the other."""
    edited = release(sealed, cluster.address)
    assert edited.digest == release(sealed, "local").digest
    assert edited.digest != here.digest, "the control: the edit is seen"


def test_a_worker_with_other_code_does_not_answer(
    sealed: Workspace, frail: DaskCluster, here: Made, tmp_path: Path
) -> None:
    clone = Workspace(shutil.copytree(sealed.root, tmp_path / "clone", symlinks=True), sealed.home)
    with (clone.root / "stages/release/passes.py").open("a") as file:
        file.write("# edited\n")
    other = DaskCluster(clone, frail.address, frail.environment)
    frail.processes.append(other.start("airlock", "worker", frail.address))
    wait_until_joined(frail)
    process, home = begin(sealed, frail.address)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 1 and "the worker's code is not the release's: check out" in output, output
    assert kinds(home).count("commit") == 0
    frail.processes.pop().kill()
    other.processes[0].wait()
    frail.grow(1)
    assert go_on(sealed, home, frail.address).wait(timeout=300) == 0
    assert finish(sealed, home).digest == here.digest


def kinds(home: Path) -> list[str]:
    """What the ledger has written about the population."""
    (database,) = home.glob("*/ledger.db")
    return [entry.kind for entry in Ledger.open(f"sqlite:///{database}", create=False).history("clinic")]


def stop_workers(cluster: DaskCluster, home: Path) -> dict[str, subprocess.Popen[bytes]]:
    """Freeze them when they have answered and before they are asked: then they have work and do not do it."""
    wait_for(lambda: "reserve" in kinds(home), "the reservation")
    for worker in cluster.processes[1:]:
        os.kill(worker.pid, signal.SIGSTOP)
    return {f"-{process.pid}": process for process in cluster.processes[1:]}


def busy(client: distributed.Client) -> str:
    """The address of a worker that was given work."""
    return str(
        wait_for(
            lambda: next((place for place, tasks in client.processing().items() if tasks), None),
            "a worker has work to do",
        )
    )


def test_a_killed_worker_changes_neither_the_bits_nor_the_bill(
    sealed: Workspace, cluster: DaskCluster, here: Made
) -> None:
    cluster.grow(4)
    wait_until_joined(cluster, 4)
    process, home = begin(sealed, cluster.address)
    workers = stop_workers(cluster, home)
    with asking(cluster) as client:
        names = {
            place: info["name"] for place, info in client.scheduler_info(n_workers=-1)["workers"].items()
        }
        found = busy(client)
        victim = workers.pop(next(suffix for suffix in workers if names[found].endswith(suffix)))
        victim.kill()
        victim.wait()
        for worker in workers.values():
            os.kill(worker.pid, signal.SIGCONT)
        output = process.communicate(timeout=300)[0]
    assert process.returncode == 0, output
    assert finish(sealed, home).digest == here.digest
    assert (kinds(home).count("reserve"), kinds(home).count("commit")) == (1, 1)


def test_without_scheduler_or_worker_nothing_is_reserved(sealed: Workspace, frail: DaskCluster) -> None:
    for address, words in (
        (f"tls://127.0.0.1:{free_port()}", "no Dask scheduler with our certificates answers"),
        (frail.address, "no Airlock worker of the cluster has answered for 4 s (release.cluster_timeout)"),
    ):
        process, home = begin(sealed, address)
        output = process.communicate(timeout=120)[0]
        assert (process.returncode, words in output) == (1, True), output
        assert "reserve" not in kinds(home)


def test_a_pass_whose_workers_are_all_gone_ends_and_is_taken_over(
    sealed: Workspace, frail: DaskCluster, here: Made
) -> None:
    frail.grow(1)
    process, home = begin(sealed, frail.address)
    stop_workers(frail, home)
    with asking(frail) as client:
        busy(client)
    frail.processes[1].kill()
    frail.processes.pop(1).wait()
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 1
    assert "no Airlock worker of the cluster has answered for 4 s" in output
    assert (kinds(home).count("reserve"), kinds(home).count("commit")) == (1, 0)
    frail.grow(1)
    again = go_on(sealed, home, frail.address)
    assert again.wait(timeout=300) == 0
    assert finish(sealed, home).digest == here.digest
    assert (kinds(home).count("reserve"), kinds(home).count("commit")) == (1, 1)


def test_a_scheduler_lost_in_a_pass_is_one_clear_line(sealed: Workspace, frail: DaskCluster) -> None:
    frail.grow(1)
    process, home = begin(sealed, frail.address)
    stop_workers(frail, home)
    with asking(frail) as client:
        busy(client)
    frail.processes[0].kill()
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 1
    told = [line for line in output.splitlines() if line.startswith("airlock: ")]
    assert len(told) == 1
    assert f"the Dask scheduler at {frail.address} was lost" in told[0]
    assert "TypeError" not in output


STRANGER = """
import os, sys, distributed
address, *files = sys.argv[1:]
tls = dict(zip(("tls_ca_file", "tls_client_cert", "tls_client_key"), files)) if files else {}
given = distributed.Security(require_encryption=True, **tls) if files else None
try:
    with distributed.Client(address, security=given, timeout=4) as client:
        print("ran as", client.submit(os.getuid).result(timeout=20))
except Exception as error:
    print("refused", type(error).__name__)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user of the machine can enter: pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(bool(second_account.MISSING), reason=second_account.MISSING)
def test_another_user_of_the_machine_cannot_run_a_function(
    sealed: Workspace, cluster: DaskCluster, open_folder: Path
) -> None:
    cluster.grow(1)
    wait_until_joined(cluster)
    own = make_certificates(open_folder)
    for path in (own.authority, own.certificate, own.key):
        path.chmod(path.stat().st_mode | 0o055)
    read = second_account.run([sys.executable, "-c", f"print(len(open({str(own.key)!r}).read()))"])
    assert int(read) > 100, "the stranger's own certificates are there for the stranger"

    def stranger(address: str, *files: Path) -> str:
        return second_account.run([sys.executable, "-c", STRANGER, address, *map(str, files)])

    assert stranger(cluster.address.replace("tls://", "tcp://")).startswith("refused")
    assert stranger(cluster.address, own.authority, own.certificate, own.key).startswith("refused")
    port = free_port()
    control = DaskCluster(sealed, f"tcp://127.0.0.1:{port}", sealed.environment)
    try:
        control.start("dask", "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
        control.start("dask", "worker", control.address, "--nworkers", "1", "--no-dashboard")
        assert stranger(control.address) == f"ran as {os.geteuid()}"
    finally:
        control.stop()


def test_the_certificates_are_the_owners_alone_and_made_once(sealed: Workspace) -> None:
    (folder,) = (sealed.home / "airlock").glob("*/dask")
    names = {f"{role}.{kind}" for role in ("scheduler", "worker", "client") for kind in ("pem", "key")}
    assert {path.name for path in folder.iterdir()} == names | {"ca.pem"}, "the authority's key is not kept"
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    again = sealed.run("airlock", "keys", "dask", check=False)
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "`airlock keys dask --renew` makes new ones" in again.stderr


def test_certificates_from_dasks_own_configuration_are_used(
    sealed: Workspace, here: Made, tmp_path: Path
) -> None:
    certificates = make_certificates(tmp_path)
    roles = {"SCHEDULER", "WORKER", "CLIENT"}
    tls = {f"DASK_DISTRIBUTED__COMM__TLS__{role}__CERT": str(certificates.certificate) for role in roles}
    tls |= {f"DASK_DISTRIBUTED__COMM__TLS__{role}__KEY": str(certificates.key) for role in roles}
    tls["DASK_DISTRIBUTED__COMM__TLS__CA_FILE"] = str(certificates.authority)
    port = free_port()
    cluster = DaskCluster(sealed, f"tls://127.0.0.1:{port}", sealed.environment | tls)
    try:
        cluster.start(
            "dask", "scheduler", "--protocol", "tls", "--host", f"tls://127.0.0.1:{port}", "--no-dashboard"
        )
        cluster.grow(1)
        assert release(sealed, cluster.address, tls).digest == here.digest
    finally:
        cluster.stop()


def test_without_certificates_the_line_names_the_command(sealed: Workspace) -> None:
    shutil.rmtree(sealed.root / "receipts/release", ignore_errors=True)
    home = sealed.home / "home-bare"
    shutil.copytree(sealed.home / "airlock", home, ignore=shutil.ignore_patterns("dask"))
    process = go_on(sealed, home, "tls://127.0.0.1:8786")
    assert (
        "a Dask client needs certificates: `airlock keys dask` makes them"
        in process.communicate(timeout=300)[0]
    )
    assert process.returncode == 2


@pytest.mark.parametrize(
    "address",
    [
        *(
            None,
            "",
            "tcp://10.0.0.7:8786",
            "tcp://scheduler:8786",
            "tls://scheduler",
            "http://127.0.0.1:80",
            "x",
        ),
        *("tcp://127.0.0.1:8786", "tcp://localhost:8786", "tcp://[::1]:8786", "inproc://x:1", "tls://:8786"),
    ],
)
def test_sums_without_noise_never_travel_in_the_clear(address: str | None) -> None:
    with pytest.raises(ParamsError, match=r"release\.address") as refused:
        check_address(address)
    assert not address or "`airlock keys dask` makes the certificates" in str(refused.value)


def test_tls_is_fine() -> None:
    assert check_address("tls://scheduler.example.org:8786") == "tls://scheduler.example.org:8786"


def wait_until_joined(cluster: DaskCluster, workers: int | None = None) -> None:
    """This many, and no more; or all that are there, which may be more than the test has asked for."""
    wanted = workers or sum(process.poll() is None for process in cluster.processes[1:])
    with asking(cluster) as client:
        wait_for(
            lambda: len(client.scheduler_info(n_workers=-1)["workers"]) == wanted, f"{wanted} workers join"
        )


def asking(cluster: DaskCluster) -> distributed.Client:
    """A client with the broker's certificate."""
    import distributed

    return distributed.Client(
        cluster.address, security=security(cluster.workspace), set_as_default=False, timeout=60
    )
