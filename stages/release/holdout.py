"""The door for public holdout records: they pass as they are, because their owner declared them public."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.params import Params
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Facts, Plan

VERSION = 1
FILE = "holdout.parquet"


def plan(params: Params, facts: Facts) -> Plan:
    """Open for public records only: of a data set that is public as a whole, or of a file that was declared
    public.
    """
    held = dict(facts.split.get("holdout", {}))
    if held.get("kind") != "public" or facts.n_holdout == 0:
        return manifest.none_plan(f"the holdout is {held.get('kind', 'none')}")
    parameters = {"holdout": held, "records": facts.n_holdout}
    if held["source"] == "file":
        proven = Guarantee(
            "proven",
            "record",
            "zero-out",
            0.0,
            0.0,
            argument="docs/proofs/evaluation.md#public-holdout",
        )
        return Plan("holdout", VERSION, parameters, passes=0, proven=proven)
    proven = Guarantee(
        "proven",
        "record",
        "zero-out",
        float("inf"),
        0.0,
        reason="the whole data set is public and passes as it is",
    )
    return Plan("holdout", VERSION, parameters, passes=1, proven=proven, public_only=True)


def make(room: Room, facts: Facts, folder: Path, release_id: str) -> dict[str, Any]:
    """Write the encoded records (x, y, valid) as Parquet."""
    import pyarrow.parquet as pq

    from stages.release.perturb import open_sealed

    with open_sealed(room, "holdout") as reader:
        first = reader.read(0)
        names = ["x", "y", "valid"]
        with pq.ParquetWriter(folder / FILE, first.select(names).schema, compression="zstd") as writer:
            for batch in reader:
                writer.write_batch(batch.select(names))
    return {"records": facts.n_holdout, "shape": list(facts.shape), "labels": list(facts.labels)}
