"""Draws a second of the keyed noise beside opendp's discrete samplers, and exact sums beside a plain matrix
product, in one run.

OMP_NUM_THREADS=1 nice python -m bench.flagship.noise        writes bench/results/noise.json
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from airlock.privacy import noise, sums

RESULTS = Path(__file__).parents[1] / "results/noise.json"
DRAWS = 1_000_000
OPENDP_DRAWS = 20_000
SCALES = {"1": 1.0, "1000": 1000.0, "2^20": 2.0**20, "2^32": 2.0**32, "2^36": 2.0**36, "2^40": 2.0**40}
ROWS, COLUMNS, BATCH = 16_384, 1000, 4096


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """The least processor time of a few runs: other programs on the machine do not count."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def stream() -> noise.Stream:
    return noise.Stream(bytes(32), release_id="bench", release_pass=0, purpose="bench", statistic=bytes(32))


def opendp_samplers(scale: float) -> dict[str, Callable[[list[int]], Any]]:
    """opendp's exact samplers of the discrete laws."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=int))
    return {
        "gaussian": dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=scale),
        "laplace": dp.m.make_laplace(domain, dp.l1_distance(T=int), scale=scale),
    }


def measure_draws() -> list[dict[str, Any]]:
    rows = []
    for name, scale in SCALES.items():
        theirs = opendp_samplers(scale)
        for law, draw in {"gaussian": noise.gaussian, "laplace": noise.laplace}.items():
            ours = DRAWS / seconds(lambda draw=draw, scale=scale: draw(stream(), scale, DRAWS))  # type: ignore[misc]
            opendp = OPENDP_DRAWS / seconds(partial(theirs[law], [0] * OPENDP_DRAWS))
            speeds = {"draws_per_second": round(ours), "opendp": round(opendp), "ratio": round(ours / opendp)}
            rows.append({"law": law, "scale": name, **speeds})
            print(rows[-1], flush=True)
    return rows


def measure_sums() -> list[dict[str, Any]]:
    """Gram matrices of integer rows, batch by batch, against the same product in plain float64."""
    rows = []
    for bits in (15, 18, 20, 22):
        records = sums.quantise_unit_rows(np.random.default_rng(bits).normal(size=(ROWS, COLUMNS)), bits)
        batches = [records[start : start + BATCH] for start in range(0, ROWS, BATCH)]

        def exact(batches: list[sums.Floats] = batches, bits: int = bits) -> sums.Integers:
            return sums.merge([sums.Gram(COLUMNS, 2**bits).add(batch) for batch in batches]).result()

        plain = seconds(lambda batches=batches: [batch.T @ batch for batch in batches])  # type: ignore[misc]
        ours = seconds(exact)
        rows.append(
            {
                "bits": bits,
                "rows": ROWS,
                "columns": COLUMNS,
                "seconds": round(ours, 3),
                "of_plain_speed": round(plain / ours, 2),
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Measure and write."""
    RESULTS.parent.mkdir(exist_ok=True)
    document = {"draws": measure_draws(), "gram": measure_sums()}
    RESULTS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
