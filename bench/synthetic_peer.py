"""OpenDP's MST and AIM on binned records: run by bench/synthetic.py in an environment of its own.

    python bench/synthetic_peer.py ALGORITHM EPSILON DELTA SEED BINS.npz OUT.npz

It needs `opendp[mbi]` and `opendp[polars]` (which pin another mbi than Airlock's extra), and nothing of
Airlock. Bins are indices, with the size of each column; the same are written back, with seconds.
"""

from __future__ import annotations

import math
import sys
import time

import numpy as np


def rho_of(epsilon: float, delta: float) -> float:
    """The largest zCDP that is (epsilon, delta)-DP by Canonne, Kamath and Steinke 2020 (arXiv 2004.00010)."""

    def delta_of(rho: float) -> float:
        orders = 1 + np.geomspace(1e-2, 1e4, 4000)
        logs = (orders - 1) * (orders * rho - epsilon) + orders * np.log1p(-1 / orders) - np.log(orders - 1)
        return math.exp(float(logs.min()))

    low, high = 0.0, epsilon
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) <= delta else (low, middle)
    return low


def main() -> None:
    """One release, one synthetic table."""
    import opendp.prelude as dp
    import polars as pl
    from opendp.extras import mbi

    name, epsilon, delta, seed, source, target = sys.argv[1:7]
    np.random.seed(int(seed))
    dp.enable_features("contrib")
    given = np.load(source)
    bins, sizes = given["bins"], given["sizes"]
    names = [f"c{place}" for place in range(len(sizes))]
    frame = pl.LazyFrame({one: bins[:, place].astype(np.int64) for place, one in enumerate(names)})
    started = time.process_time()
    keys = {one: list(range(int(size))) for one, size in zip(names, sizes, strict=True)}
    # All keys are given, so that nothing of delta is needed besides. With some budgets OpenDP's MST asks for
    # more than it has left by a rounding: then a little less is spent.
    for attempt in range(20):
        rho = rho_of(float(epsilon), float(delta)) * (1 - attempt * 1e-4)
        context = dp.Context.compositor(
            data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=rho)
        )
        algorithm = {"mst": mbi.MST, "aim": mbi.AIM}[name]()
        query = context.query(rho=rho).select(*names)
        try:
            table = query.contingency_table(keys=keys, algorithm=algorithm).release()
            break
        except dp.OpenDPException as error:
            if "insufficient budget" not in str(error) or attempt == 19:
                raise
    made = table.synthesize(rows=len(bins))
    seconds = time.process_time() - started
    found = np.column_stack([made[one].fill_null(0).to_numpy() for one in names]).astype(np.int64)
    np.savez(target, bins=found, seconds=seconds)


if __name__ == "__main__":
    main()
