"""What a stage can and cannot do behind the wall, how it ends, and what is known about it afterwards."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airlock.errors import BoundaryError, StageFailed
from airlock.wall import layers, sandbox
from airlock.wall.layers import Layer
from tests.support.small_workspace import SECRET, Cell, cell

OFFERED = layers.choose("advisory", zone="open")
needs_all = pytest.mark.skipif(layers.ALL != OFFERED, reason="not all layers here: airlock doctor")
needs_minimum = pytest.mark.skipif(not OFFERED >= layers.MINIMUM, reason="no Landlock here: airlock doctor")
walls = pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(layers.ALL, marks=needs_all, id="full"),
        pytest.param(layers.ALL - {Layer.ROOT}, marks=needs_all, id="no-root"),
        pytest.param(layers.MINIMUM, marks=needs_minimum, id="minimum"),
    ],
)


@pytest.fixture
def room() -> Iterator[Cell]:
    with cell() as made:
        yield made


@walls
def test_reads_its_dep_and_writes_its_out(room: Cell, wanted: frozenset[Layer]) -> None:
    outcome = room.run(
        f"open({str(room.staging / 'out')!r}, 'w').write(open({str(room.dep)!r}).read())", wanted
    )
    assert outcome.returncode == 0, room.output
    assert (room.staging / "out").read_text() == "the dep"
    assert outcome.layers == wanted


@walls
def test_cannot_read_what_it_was_not_granted(room: Cell, wanted: frozenset[Layer]) -> None:
    assert room.run(f"print(open({str(room.raw)!r}).read())", wanted).returncode == 1
    assert SECRET not in room.output
    assert "FileNotFoundError" in room.output or "PermissionError" in room.output


@needs_all
def test_without_a_wall_it_could(room: Cell) -> None:
    outcome = room.run(f"print(open({str(room.raw)!r}).read())", frozenset())
    assert SECRET in room.output
    assert outcome.layers == frozenset()


@needs_all
def test_sees_only_its_grants(room: Cell) -> None:
    room.run(
        "import os; print(os.listdir('/'), sorted(os.listdir('.')), os.listdir('data'), "
        "os.path.exists('data/raw'))"
    )
    assert "['data', 'scratch', 'staging'] ['released'] False" in room.output
    assert "home" not in room.output


@walls
def test_a_wall_with_a_hole_is_found_and_the_stage_not_started(room: Cell, wanted: frozenset[Layer]) -> None:
    holed = replace(room.grants(), read=(*room.grants().read, room.base / "data"))
    with pytest.raises(BoundaryError, match="hole"):
        room.run("open('staging/started', 'w')", wanted, grants=holed)
    assert list(room.staging.iterdir()) == []


@walls
def test_imports_code_from_its_working_folder(room: Cell, wanted: frozenset[Layer]) -> None:
    (room.base / "package").mkdir()
    (room.base / "package/module.py").write_text("print('imported')")
    grants = room.grants()
    argv = [sys.executable, "-m", "package.module"]
    room.run("", wanted, argv=argv, grants=replace(grants, read=(*grants.read, room.base / "package")))
    assert room.output == "imported\n"


@needs_minimum
def test_a_canary_that_proves_nothing_is_refused(room: Cell) -> None:
    for canary in (None, room.base / "missing", room.base):
        with pytest.raises(BoundaryError, match="canary"):
            room.run("pass", layers.MINIMUM, grants=replace(room.grants(), canary=canary))


@walls
def test_a_missing_grant_fails_closed(room: Cell, wanted: frozenset[Layer]) -> None:
    grants = room.grants()
    with pytest.raises(BoundaryError, match="gone"):
        room.run("pass", wanted, grants=replace(grants, read=(*grants.read, room.base / "gone")))


@walls
def test_a_program_that_cannot_be_started_is_an_error_of_the_wall(
    room: Cell, wanted: frozenset[Layer]
) -> None:
    with pytest.raises(BoundaryError, match="set up"):
        room.run("", wanted, argv=["/usr/bin/no-such-program"])


@walls
def test_environment_and_limits_are_clean(
    room: Cell, wanted: frozenset[Layer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRLOCK_HOME", "/somewhere")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    room.run(
        """
import json, os, resource, sys
core = resource.getrlimit(resource.RLIMIT_CORE)
print(json.dumps([dict(os.environ), core, sys.stdin.read(), os.getsid(0) == os.getpid()]))
""",
        wanted,
    )
    environment, core, stdin, leads = json.loads(room.output)
    assert "AIRLOCK_HOME" not in environment
    assert environment["OMP_NUM_THREADS"] == "1"
    assert environment["HOME"] == environment["TMPDIR"] == str(room.base / "scratch")
    assert max(core) <= 1  # see launcher: 1 stops dumps to a pipe as well
    assert stdin == ""
    assert leads


@walls
def test_descriptors_are_mapped_and_all_others_closed(room: Cell, wanted: frozenset[Layer]) -> None:
    request, given = os.pipe()
    events, told = os.pipe()
    leaked = os.open(room.raw, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    os.write(given, b"hello")
    os.close(given)
    code = (
        "import os; os.write(4, os.read(3, 99)); print([n for n in range(5, 512) if "
        "os.path.exists(f'/proc/self/fd/{n}')])"
    )
    try:
        room.run(code, wanted, pass_fds={3: request, 4: told})
    finally:
        os.close(leaked)
        os.close(request)
        os.close(told)
    assert os.read(events, 99) == b"hello"
    os.close(events)
    assert room.output.strip() == "[]"


@walls
def test_a_terminal_can_be_written_but_not_listened_to(room: Cell, wanted: frozenset[Layer]) -> None:
    ours, theirs = os.openpty()
    os.write(ours, b"password\n")
    code = """
import os
for descriptor in (1, 2):
    try:
        print("heard", os.read(descriptor, 9))
    except OSError:
        print("deaf", os.isatty(descriptor))
"""
    options = {"pass_fds": {}, "cwd": room.base, "scratch": room.base / "scratch", "timeout": 60}
    sandbox.run([sys.executable, "-c", code], room.grants(), wanted, stdout=theirs, stderr=theirs, **options)
    shown = b"".join(iter(lambda: os.read(ours, 4096) if select.select([ours], [], [], 0)[0] else b"", b""))
    os.close(theirs)
    os.close(ours)
    assert shown.count(b"deaf True") == 2


@walls
def test_a_stage_with_a_gpu_can_name_its_threads_and_nothing_else_in_proc(
    room: Cell, wanted: frozenset[Layer]
) -> None:
    """Any device node stands for NVIDIA's here: what counts is that /proc is writable for the processes' own
    folders only.
    """
    code = """
import os
open("/proc/self/comm", "w").write("named")
print(open("/proc/self/comm").read())
for path in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger"):
    try:
        open(path, "w").write(open(path).read())
        print("written", path)
    except OSError as error:
        print(type(error).__name__)
"""
    room.run(code, wanted, grants=replace(room.grants(), devices=(Path("/dev/full"),)))
    assert room.output.startswith("named\n")
    assert "written" not in room.output


@needs_all
@pytest.mark.skipif(
    Path(sys.prefix).is_relative_to("/tmp"),
    reason="the interpreter itself is below /tmp, which is then granted read-only",
)
def test_temporary_files_at_the_usual_place_are_private(room: Cell) -> None:
    outcome = room.run("open('/tmp/airlock-private', 'w').write('x')")
    assert outcome.returncode == 0, room.output
    assert (room.base / "scratch/airlock-private").exists()
    assert not Path("/tmp/airlock-private").exists()


def test_a_new_root_without_namespaces_is_never_tried(room: Cell) -> None:
    with pytest.raises(BoundaryError, match="namespaces"):
        room.run("pass", frozenset({Layer.ROOT}))


@walls
def test_a_signal_is_told_as_a_shell_would(room: Cell, wanted: frozenset[Layer]) -> None:
    assert room.run("import os; os.kill(os.getpid(), 9)", wanted).returncode == 128 + signal.SIGKILL
    assert room.run("raise SystemExit(3)", wanted).returncode == 3


@walls
def test_the_time_limit_ends_everything(room: Cell, wanted: frozenset[Layer]) -> None:
    with pytest.raises(StageFailed, match="seconds"):
        room.run(
            "import subprocess, sys; subprocess.run([sys.executable, '-c', 'while True: pass'])",
            wanted,
            timeout=3,
        )
    assert not alive(str(room.base))


@walls
def test_nothing_outlives_a_killed_runner(room: Cell, wanted: frozenset[Layer]) -> None:
    """The stage starts a grandchild that holds a pipe open; the runner is killed without a chance to clean
    up.
    """
    held, kept = os.pipe()
    started, ready = os.pipe()
    stage = """
import os, subprocess
subprocess.Popen(["/bin/sleep", "600"], pass_fds=[3], start_new_session=True)
os.write(4, b"x")
os.wait()
"""
    runner = f"""
import sys; sys.path[:0] = [{str(Path(__file__).parents[2])!r}]
from tests.support.small_workspace import Cell
from pathlib import Path
from airlock.wall.layers import Layer
room = Cell(Path({str(room.base / "second")!r}))
wanted = frozenset(map(Layer, {sorted(map(str, wanted))!r}))
room.run({stage!r}, wanted, pass_fds={{3: {kept}, 4: {ready}}}, timeout=None)
"""
    process = subprocess.Popen([sys.executable, "-c", runner], pass_fds=[kept, ready])
    os.close(kept)
    os.close(ready)
    assert os.read(started, 1) == b"x"
    process.kill()
    process.wait()
    assert os.read(held, 1) == b""  # the end of the pipe: its last holder is gone
    os.close(held)
    os.close(started)


@walls
def test_records_what_was_read(room: Cell, wanted: frozenset[Layer]) -> None:
    silent = room.run("pass", wanted)
    reading = room.run(f"import pyarrow; pyarrow.OSFile({str(room.dep)!r}).read()", wanted)
    assert (silent.reads, reading.reads) == ((), (str(room.dep),))
    expected = "fanotify" if os.getuid() == 0 and Layer.ROOT in wanted else "inotify"
    assert reading.recorder == expected


@walls
def test_records_a_file_of_a_watched_folder_by_the_folder(room: Cell, wanted: frozenset[Layer]) -> None:
    outcome = room.run(
        f"open({str(room.dep)!r})", wanted, watch=[room.base / "data/released", room.base / "data/raw"]
    )
    assert outcome.reads == (str(room.base / "data/released"),)


@needs_minimum
def test_an_open_by_somebody_else_is_unknown_not_no(room: Cell) -> None:
    outcome = room.run("pass", layers.MINIMUM, on_start=lambda pid: room.raw.read_text())
    assert outcome.reads is None
    assert "some process" in outcome.recorder


@needs_all
@pytest.mark.skipif(os.getuid() != 0, reason="fanotify needs root")
def test_as_root_an_open_by_somebody_else_is_not_the_stages(room: Cell) -> None:
    assert room.run("pass", on_start=lambda pid: room.raw.read_text()).reads == ()


@walls
def test_an_open_stage_cannot_load_data_that_a_package_carries(room: Cell, wanted: frozenset[Layer]) -> None:
    outcome = room.run(
        "from sklearn.datasets import load_breast_cancer; print(load_breast_cancer().data.sum())", wanted
    )
    assert outcome.returncode == 1
    assert "ModuleNotFoundError" in room.output or "PermissionError" in room.output
    code = "import sklearn.datasets, pathlib; print(pathlib.Path('{}').read_text())"
    room.run(
        code.format(
            Path(sys.prefix) / "lib/python3.11/site-packages/sklearn/datasets/data/breast_cancer.csv"
        ),
        wanted,
    )
    assert "malignant" not in room.output


@walls
def test_a_sensitive_stage_can(room: Cell, wanted: frozenset[Layer]) -> None:
    code = "from sklearn.datasets import load_breast_cancer; print(load_breast_cancer().data.shape)"
    assert room.run(code, wanted, grants=room.grants("sensitive")).returncode == 0, room.output
    assert "(569, 30)" in room.output


TRAINING = """
import numpy, scipy.stats, scipy.io, captum, safetensors.torch, torch, matplotlib.pyplot
import pyarrow as pa, pyarrow.parquet as pq
from torch.utils.data import DataLoader, TensorDataset
x = torch.randn(64, 4, generator=torch.Generator().manual_seed(0))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.5)
for epoch in range(3):
    for a, b in DataLoader(TensorDataset(x, (x.sum(1) > 0).float()), batch_size=16, num_workers=WORKERS):
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(a)[:, 0], b)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
safetensors.torch.save_file(model.state_dict(), "staging/model.safetensors")
pq.write_table(pa.table({"loss": [loss.item()]}), "staging/loss.parquet")
print("trained", pq.read_table("staging/loss.parquet").num_rows)
"""


@pytest.mark.parametrize(
    ("wanted", "workers"),
    [
        pytest.param(layers.ALL, 2, marks=needs_all, id="full"),
        pytest.param(layers.MINIMUM, 0, marks=needs_minimum, id="minimum"),
    ],
)
def test_torch_with_workers_and_pyarrow_work_inside(
    room: Cell, wanted: frozenset[Layer], workers: int
) -> None:
    outcome = room.run(TRAINING.replace("WORKERS", str(workers)), wanted)
    assert outcome.returncode == 0, room.output
    assert "trained 1" in room.output
    assert (room.staging / "model.safetensors").exists()


@needs_minimum
def test_workers_fail_at_once_where_they_cannot_run(room: Cell) -> None:
    """Sockets would reach the machine's services; a clear error is better than a hang."""
    outcome = room.run(TRAINING.replace("WORKERS", "2"), layers.MINIMUM)
    assert outcome.returncode == 1
    assert "PermissionError" in room.output


def alive(mark: str) -> bool:
    """Whether any process still has `mark` in its environment."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                return True
        except OSError:
            continue
    return False
