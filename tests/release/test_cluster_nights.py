"""Nights of a horizon, bit for bit, from this machine and from a cluster of separate processes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import Workspace, make_workspace
from tests.release.test_cluster import OUT, DaskCluster, release, start_cluster, wait_until_joined

pytestmark = pytest.mark.xdist_group("cluster")
ROWS, NIGHTS = 9_000, 32
SCHEMA = """name: clinic
kind: tabular
public: false
confirmed: true
label: {column: outcome, classes: [healthy, ill]}
columns:
- {name: age, type: number, bounds: [0, 100]}
- {name: weight, type: number, bounds: [0, 200]}
"""


def batch(night: int) -> pa.Table:
    """Records of three chunks that are on no other night."""
    generator = np.random.default_rng(night)
    age = (np.arange(ROWS) + night / 8) / ROWS * 99
    return pa.table(
        {
            "age": age,
            "weight": np.clip(age + generator.normal(0, 20, ROWS), 0, 200),
            "outcome": np.array(["healthy", "ill"])[(age + generator.normal(0, 20, ROWS) > 50).astype(int)],
        }
    )


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """A private population of three nights, of which the first is ingested."""
    made = make_workspace(tmp_path_factory.mktemp("growing"))
    (made.root / "data/schemas/clinic.yaml").write_text(SCHEMA)
    for night in (1, 2, 3):
        path = made.home / f"night-{night}.parquet"
        pq.write_table(batch(night), path)
        cap = ["--epsilon", "2", "--delta", "1e-6"] if night == 1 else []
        made.run("airlock", "add", str(path), "--name", "clinic", "--append", *cap)
    asked = {"dataset": "clinic", "ingest.night": 1, "release.delta": 1e-6, "evaluate.holdout": "none"}
    for key, value in {**asked, "release.horizon": NIGHTS, "release.features": "hybrid-8-1"}.items():
        made.set(key, value)
    made.run("airlock", "keys", "dask")
    made.run("airlock", "run", "ingest")  # a worker starts where records are sealed
    return made


@pytest.fixture(scope="module")
def cluster(growing: Workspace) -> Iterator[DaskCluster]:
    made = start_cluster(growing)
    made.grow(2)
    wait_until_joined(made, 2)
    yield made
    made.stop()


def test_nights_of_both_chapters_give_the_same_bits(growing: Workspace, cluster: DaskCluster) -> None:
    """The first two nights of 32 tell columns beside the coefficients; the third one's rows are whitened by these."""
    matrices = []
    for night in (1, 2, 3):
        growing.set("ingest.night", night)
        for stage in ("ingest", "relevance"):
            growing.run("airlock", "run", stage)
        there, here = release(growing, cluster.address), release(growing, "local")
        assert there.digest == here.digest, night
        told = json.loads((growing.root / OUT / "release.json").read_text())
        assert told["details"]["horizon"]["night"] == night
        matrices.append("columns" in told["details"]["sums"])
        # The next night goes on from this one.
        shutil.rmtree(growing.home / "airlock")
        shutil.copytree(here.home, growing.home / "airlock")
    assert matrices == [True, True, False]
