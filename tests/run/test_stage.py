"""The runner gives a stage what it declares and nothing else, and says in public nothing that depends on a
record.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airlock.run import handover
from tests.conftest import Workspace

SECRET = "734512.125"
SPY = """
from pathlib import Path

def main(room):
    room.path("data/open/spied").mkdir(parents=True)
    (room.path("data/open/spied") / "found.txt").write_text("here I was")
    {action}
"""
STAGE = """
  spy:
    desc: An open stage of the user's own.
    cmd: airlock run spy
    meta: {zone: open, module: stages.open.spy}
    deps: [data/model, stages/open]
    params: [train]
    outs:
    - data/open/spied: {remote: released}
"""


def add_spy(workspace: Workspace, action: str) -> subprocess.CompletedProcess[str]:
    (workspace.root / "stages/open/spy.py").write_text(SPY.format(action=action))
    with (workspace.root / "dvc.yaml").open("a") as file:
        file.write(STAGE)
    return workspace.run("airlock", "run", "spy", check=False)


def test_an_open_stage_of_the_users_own_runs_and_reads_what_it_declares(finished: Workspace) -> None:
    done = add_spy(finished, 'assert (room.path("data/model") / "model.json").read_text()')
    assert done.returncode == 0, done.stderr
    assert (finished.root / "data/open/spied/found.txt").read_text() == "here I was"


@pytest.mark.parametrize(
    "action",
    [
        'open("{work}/data/sealed/train.sealed", "rb").read()',
        'open("{work}/data/sealed/meta.json").read()',
        'open("{work}/data/raw/wdbc/records.parquet", "rb").read()',
        'open("{home}/airlock/airlock-default/keys/master", "rb").read()',
        'open("{home}/airlock/airlock-default/scratch.db", "rb").read()',
        'open("{work}/.git/HEAD").read()',
        'open("{work}/data/released/release/release.json").read()',
        'Path("{work}/params.yaml").write_text("dataset: other")',
        'room.path("data/sealed")',
        "from sklearn.datasets import load_breast_cancer; load_breast_cancer()",
    ],
)
def test_an_open_stage_cannot_touch_what_it_did_not_declare(finished: Workspace, action: str) -> None:
    params = (finished.root / "params.yaml").read_bytes()
    done = add_spy(finished, action.format(work=finished.root, home=finished.home))
    assert done.returncode != 0 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not (finished.root / "data/open/spied").exists(), "a failed stage publishes nothing"
    assert (finished.root / "params.yaml").read_bytes() == params
    assert list((finished.home / "airlock/airlock-default").glob("airlock-*")) == [], "staging is gone"


def test_undeclared_files_are_dropped_and_links_refused(finished: Workspace) -> None:
    done = add_spy(finished, '(room.path("data/open/spied").parent / "extra.txt").write_text("x")')
    assert done.returncode == 0 and not (finished.root / "data/extra.txt").exists()


def test_a_missing_out_is_an_error_that_names_it(finished: Workspace) -> None:
    done = add_spy(finished, 'import shutil; shutil.rmtree(room.path("data/open/spied"))')
    assert done.returncode == 1 and "data/open/spied" in done.stderr


def test_a_dep_that_is_a_link_is_refused(finished: Workspace) -> None:
    model = finished.root / "data/model"
    model.rename(finished.root / "data/elsewhere")
    model.symlink_to(finished.root / "data/sealed")
    done = finished.run("airlock", "run", "evaluate", check=False)
    assert done.returncode == 1 and "'data/model' is a link" in done.stderr


def spoil(workspace: Workspace, line: str) -> None:
    """Put a line at the start of the release room's main function."""
    workspace.edit(
        "stages/release/perturb.py",
        "    facts = facts_of(room)\n",
        f"    {line}\n    facts = facts_of(room)\n",
    )
    workspace.set("release.epsilon", 0.7)


def test_a_crash_in_a_room_with_records_says_where_and_never_what(finished: Workspace) -> None:
    spoil(finished, f'print("{SECRET}"); raise ValueError("the value {SECRET} is odd")')
    done = finished.run("airlock", "run", "release", check=False)
    assert done.returncode == 1 and SECRET not in done.stdout + done.stderr
    assert "ValueError at perturb.py:" in done.stderr and "owner's log" in done.stderr
    log = finished.home / "airlock/airlock-default/log"
    assert SECRET in (log / "release.jsonl").read_text() and SECRET in (log / "release.out").read_text()
    assert all(path.stat().st_mode & 0o077 == 0 for path in log.iterdir())


def test_a_log_that_cannot_be_written_is_one_line_and_the_stage_is_heard_to_its_end(
    finished: Workspace,
) -> None:
    """As on a full disk: the thread that listens used to die of it, and then the stage of a pipe without a reader."""
    log = finished.home / "airlock/airlock-default/log"
    (log / "release.out").unlink(missing_ok=True)
    (log / "release.out").mkdir()
    spoil(finished, 'print("x" * 200_000)')
    finished.run("airlock", "run", "relevance")
    done = finished.run("airlock", "run", "release", check=False)
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert "the owner's log in" in done.stderr and "make room on its disk" in done.stderr
    (log / "release.out").rmdir()
    before = spent(finished)
    assert finished.run("airlock", "run", "release").returncode == 0
    assert spent(finished) == before, "what was reserved is taken over"


def test_a_stage_is_heard_to_its_end_though_nobody_sees_its_progress() -> None:
    """As on a terminal that is gone: a thread that ends leaves the stage with a pipe that nobody reads."""
    told = []

    def hear(event: Mapping[str, Any]) -> None:
        told.append(event["label"])
        raise OSError(errno.EIO, "Input/output error")

    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as pipe:
        for label in ("first", "second"):
            pipe.write(json.dumps({"kind": "progress", "label": label, "done": 1, "total": 2}) + "\n")
    handover._drain(reader, hear, 1000)
    assert told == ["first", "second"]


def reserved(workspace: Workspace) -> int:
    with sqlite3.connect(workspace.home / "airlock/airlock-default/scratch.db") as database:
        return int(
            database.execute("select count(*) from ledger_entries where kind = 'reserve'").fetchone()[0]
        )


def spent(workspace: Workspace) -> float:
    (ledger,) = json.loads(workspace.run("airlock", "budget", "show", "wdbc", "--json").stdout)["ledgers"]
    (population,) = ledger["populations"]
    return float(population["epsilon"])


def test_killed_in_the_middle_it_stays_spent_and_the_next_run_takes_it_over(finished: Workspace) -> None:
    finished.set("release.epsilon", 0.7)
    finished.run("airlock", "run", "relevance")
    before, entries = spent(finished), reserved(finished)
    spoil(finished, "import time; time.sleep(600)")
    process = subprocess.Popen(
        ["airlock", "run", "release"], cwd=finished.root, env=finished.environment, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while reserved(finished) == entries and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.2)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    after = spent(finished)
    assert after > before, "a reservation whose process died stays spent"
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and _inside(pid, finished)], "no orphan"
    finished.edit("stages/release/perturb.py", "    import time; time.sleep(600)\n", "")
    finished.run("airlock", "run", "release")
    left = [
        path.name
        for folder in (Path("/dev/shm"), finished.home / "airlock/airlock-default")
        for path in folder.glob(f"airlock-{process.pid}-*")
    ]
    assert left == [], "the next run sweeps up"
    assert spent(finished) == after, "taken over, not charged twice"
    assert (
        json.loads((finished.root / "data/released/release/release.json").read_text())["proven"]["epsilon"]
        <= 0.7
    )


@pytest.mark.parametrize("mechanism", ["dp-sgd", "dp-mac", "optimized-noise", "ellipsoid-noise"])
def test_a_device_that_is_not_here_is_refused_before_anything_is_reserved(
    finished: Workspace, mechanism: str
) -> None:
    finished.set("release.mechanism", mechanism)
    finished.set("release.options", {"device": "nowhere"})
    finished.run("airlock", "run", "relevance")
    before, entries = spent(finished), reserved(finished)
    done = finished.run("airlock", "run", "release", check=False)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "release.options.device 'nowhere' is not on this machine: use auto or cpu" in line
    assert (spent(finished), reserved(finished)) == (before, entries)


SCANS = """name: scans
kind: image
public: true
confirmed: true
label: {column: finding, classes: [healthy, ill]}
image: {height: 8, width: 8, column: scan, bounds: [0, 255]}
features: onnx:clinic.onnx
encoder: {sha256: SHA, width: WIDTH, seen: generated pictures, vouched_by: the physicist}
"""


def test_an_encoder_that_cannot_be_used_is_refused_before_anything_is_reserved(workspace: Workspace) -> None:
    """A width that is corrected is another schema, and with it another release: both would be charged."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    make, root = onnx.helper, workspace.root
    graph = make.make_graph(
        [make.make_node("Flatten", ["pictures"], ["features"])],
        "encoder",
        [make.make_tensor_value_info("pictures", onnx.TensorProto.FLOAT, ["n", 1, 8, 8])],
        [make.make_tensor_value_info("features", onnx.TensorProto.FLOAT, None)],
    )
    made = make.make_model(graph, opset_imports=[make.make_opsetid("", 20)], ir_version=10)
    (root / "data/encoders/clinic.onnx").write_bytes(made.SerializeToString())
    digest = hashlib.sha256(made.SerializeToString()).hexdigest()
    generator = np.random.default_rng(0)
    scans = [one.tobytes() for one in generator.integers(0, 256, (30, 64), dtype=np.uint8)]
    pq.write_table(
        pa.table({"scan": scans, "finding": ["healthy", "ill"] * 15}), workspace.home / "scans.parquet"
    )
    for key, value in {"dataset": "scans", "evaluate.holdout": "none"}.items():
        workspace.set(key, value)

    def released(width: int) -> subprocess.CompletedProcess[str]:
        text = SCANS.replace("SHA", digest).replace("WIDTH", str(width))
        (root / "data/schemas/scans.yaml").write_text(text)
        workspace.run("airlock", "add", str(workspace.home / "scans.parquet"), "--name", "scans")
        workspace.run("airlock", "run", "ingest")
        return workspace.run("airlock", "run", "relevance", check=False)

    done = released(63)
    assert done.returncode == 1
    assert "clinic.onnx gives 64 features and the schema says 63: correct it" in done.stderr
    assert reserved(workspace) == 0
    done = released(64)
    assert done.returncode == 0, done.stderr
    assert reserved(workspace) == 1


def _inside(pid: str, workspace: Workspace) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/cwd").startswith(str(workspace.root))
    except OSError:
        return False


def test_the_train_stage_itself_cannot_load_a_data_set_from_a_package(finished: Workspace) -> None:
    finished.edit(
        "stages/open/train.py",
        "    folder = room.path(RELEASE)\n",
        "    from sklearn.datasets import load_breast_cancer\n\n    load_breast_cancer()\n    folder = "
        "room.path(RELEASE)\n",
    )
    done = finished.run("airlock", "run", "train", check=False)
    assert done.returncode == 1 and "crashed" in done.stderr
    log = (finished.home / "airlock/airlock-default/log/train.jsonl").read_text()
    assert "sklearn" in log and ("ModuleNotFoundError" in log or "PermissionError" in log)


def test_training_that_was_killed_goes_on_and_ends_in_the_same_bytes(finished: Workspace) -> None:
    finished.set("train.method", "sgd")
    finished.set("train.epochs", 2000)
    finished.set("train.batch", 64)
    finished.run("airlock", "run", "train")
    whole = (finished.root / "data/model/model.safetensors").read_bytes()
    checkpoints = finished.home / "airlock/airlock-default/checkpoints"
    assert not any(checkpoints.glob("*/*/train")), "a run that ends well keeps nothing"
    process = subprocess.Popen(
        ["airlock", "run", "train"], cwd=finished.root, env=finished.environment, start_new_session=True
    )
    deadline = time.monotonic() + 120
    while (
        not any(checkpoints.glob("*/*/train/*.safetensors"))
        and time.monotonic() < deadline
        and process.poll() is None
    ):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert any(checkpoints.glob("*/*/train/*.safetensors")), "killed after its first checkpoint"
    finished.run("airlock", "run", "train")
    assert (finished.root / "data/model/model.safetensors").read_bytes() == whole
