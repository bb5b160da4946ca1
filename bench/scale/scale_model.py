"""`python -m bench.scale.scale_model`: what a release of a billion records would cost, from what a few chunks
cost here.

Processor time of one core is measured, chunk by chunk, for everything that a worker does: open the sealed
chunk, encode, compute features, take exact sums. Processor time and not wall time, so that other work on the
machine does not show.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from airlock.inside.sealed import ROWS, SealedReader, SealedWriter
from airlock.models.features.features import DEFAULTS, feature_map
from airlock.models.features.projection import centre
from airlock.records.encoding import Encoded, pack
from airlock.run.dask_broker import CHUNKS_PER_TASK
from stages.release.passes import Records, Wanted

RECORDS, WORKERS, CHUNKS = 10**9, (1, 64, 256), 4
SHAPES: dict[str, tuple[int, ...]] = {"tabular": (30,), "image": (28, 28, 1)}
CLASSES = {"tabular": 2, "image": 10}


@dataclass(frozen=True)
class Cost:
    """Of one kind of data: seconds per record and pass, sealed
    bytes per record, bytes of one task's answer.
    """

    kind: str
    passes: int
    seconds: float
    sealed: float
    answer: int

    def row(self, workers: int) -> list[str]:
        """Hours on so many workers, terabytes on disk, gigabytes sent in the last pass."""
        tasks = -(-RECORDS // (ROWS[self.kind] * CHUNKS_PER_TASK))
        hours = RECORDS * self.seconds * self.passes / workers / 3600
        return [
            self.kind,
            str(workers),
            f"{hours:,.1f}",
            f"{RECORDS * self.sealed / 1e12:.2f}",
            f"{tasks * self.answer / 1e9:.2f}",
        ]


def measure(kind: str, folder: Path) -> Cost:
    """Seal a few chunks of random records and take all sums of the last pass over them."""
    path, key, shape, classes = folder / kind, bytes(32), SHAPES[kind], CLASSES[kind]
    with SealedWriter(path, key, rows=ROWS[kind]) as writer:
        writer.write(_batch(kind, shape, classes))
    found = feature_map(DEFAULTS[kind], kind, shape)
    with SealedReader(path, key) as reader:
        records = Records(reader, found, shape, cache_bytes=0)
        records.steps.append(centre(np.zeros(found.width, np.int64), RECORDS, bias=found.bias))
        question = Wanted({"gram": "gram", "cross": "cross"}, classes)
        records.sums_over(range(1), question)  # first calls set tables up
        start = time.process_time()
        answer = records.sums_over(range(CHUNKS), question)
        seconds = time.process_time() - start
    count = CHUNKS * ROWS[kind]
    size = sum(value.nbytes for value in answer.values())
    return Cost(kind, {"tabular": 2, "image": 3}[kind], seconds / count, path.stat().st_size / count, size)


def _batch(kind: str, shape: tuple[int, ...], classes: int) -> pa.RecordBatch:
    generator, count = np.random.default_rng(0), CHUNKS * ROWS[kind]
    x: Any = (
        generator.integers(0, 256, (count, *shape), dtype=np.uint8)
        if kind == "image"
        else generator.random((count, *shape))
    )
    return pack(Encoded(x, generator.integers(0, classes, count).astype(np.int32), np.ones(count, np.uint8)))


def main() -> None:
    """Measure and print a table for docs/scale.md."""
    with tempfile.TemporaryDirectory() as folder:
        costs = [measure(kind, Path(folder)) for kind in SHAPES]
    for cost in costs:
        print(
            f"{cost.kind}: {cost.seconds * 1e6:.1f} microseconds of a core per record and pass, "
            f"{cost.sealed:.0f} bytes sealed, ",
            end="",
        )
        print(f"{cost.passes} passes, an answer is {cost.answer / 1e6:.2f} MB")
    print(
        "\n| records | workers | hours | sealed TB | sent GB per pass |\n| --- | ---: | ---: | ---: | ---: |"
    )
    for cost in costs:
        for workers in WORKERS:
            print(f"| {' | '.join(cost.row(workers))} |")


if __name__ == "__main__":
    main()
