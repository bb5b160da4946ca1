"""Cost against the number of records: 10^4 to 10^7 synthetic rows, sealed, then released. Time should grow
with n, memory not.

    python -m bench.scale.scaling              results go to bench/results/scaling.json, the picture to docs/scaling.svg

Also: how near the accumulation of a Gram matrix comes to the speed of the machine's own matrix product.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.flagship.accuracy import keep

RESULTS = Path(__file__).parents[1] / "results/scaling.json"
PICTURE = Path(__file__).parents[2] / "docs/scaling.svg"
SIZES = (10**4, 10**5, 10**6, 10**7)
COLUMNS, CLASSES, ROWS = 30, 2, 4096
KEY = bytes(32)
MECHANISMS = ("coefficients", "coefficients-iterated")
LARGEST = {"coefficients": 10**7, "coefficients-iterated": 10**6}


def main() -> None:
    """Measure all sizes, each in a process of its own; or (with --cell) one here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", nargs="?", type=int)
    parser.add_argument("mechanism", nargs="?", choices=MECHANISMS)
    parser.add_argument("--cell", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.cell:
        print(json.dumps(measure(asked.cell, asked.size, asked.mechanism)))
        return
    from bench.flagship.accuracy import in_own_process

    for size in SIZES:
        if asked.size in (None, size):
            with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
                seal(Path(folder), size)
                for name in MECHANISMS if asked.mechanism is None else [asked.mechanism]:
                    if size <= LARGEST[name]:
                        row = in_own_process("bench.scale.scaling", str(size), name, "--cell", folder)
                        keep(row, RESULTS)
    speed = gram_speed()
    print(f"the accumulation reaches {100 * speed['gram_fraction']:.0f} % of the machine's matrix product")
    keep(speed, RESULTS)
    draw(json.loads(RESULTS.read_text()))


def seal(folder: Path, size: int) -> None:
    """Seal `size` random records, a few thousand at a time."""
    from airlock.inside.sealed import SealedWriter
    from airlock.records.encoding import Encoded, pack

    random = np.random.default_rng(0)
    with SealedWriter(folder / "train.sealed", KEY, rows=ROWS) as writer:
        for start in range(0, size, ROWS):
            x, y = synthetic(min(ROWS, size - start), random)
            writer.write(pack(Encoded(x, y, np.ones(len(y), np.uint8))))


def synthetic(count: int, random: np.random.Generator) -> tuple[Any, Any]:
    """Records of two classes that overlap."""
    y = random.integers(CLASSES, size=count).astype(np.int32)
    return np.clip(0.4 + 0.05 * y[:, None] + 0.1 * random.standard_normal((count, COLUMNS)), 0, 1), y


def measure(folder: Path, size: int, name: str) -> dict[str, Any]:
    """Release from sealed records and train, with what public facts choose for them."""
    from airlock.inside.sealed import SealedReader
    from airlock.models.features.choice import settle
    from airlock.models.features.projection import steps_of
    from airlock.models.model import Model
    from airlock.models.moments import choose_ridge, closed_form, moments_of
    from airlock.params import Params
    from airlock.privacy.plan import Facts
    from bench.flagship.pipeline import peak_memory_mb
    from stages.mechanisms import Whole, mechanism

    facts = Facts(
        "synthetic", True, "tabular", size, 0, (COLUMNS,), ("a", "b"), "s", "f", layout=f"nx{COLUMNS}"
    )
    params = settle(Params.model_validate({"release": {"delta": 1e-8, "mechanism": name}}), facts)
    whole = Whole(mechanism(name))
    with SealedReader(folder / "train.sealed", KEY) as reader:
        start, worked = time.perf_counter(), time.process_time()
        tensors, details = whole.make(params, facts, reader, key=KEY, release_id="scaling")
        if "head" in tensors:
            weights = tensors["head"] * details["head_unit"]
        else:
            moments = moments_of(tensors, details, size)
            weights = closed_form(moments, choose_ridge(moments, "auto"))
        seconds, worked = time.perf_counter() - start, time.process_time() - worked
    steps = steps_of(tensors, details["bias"])
    model = Model(
        details["features"], "tabular", (COLUMNS,), facts.labels, steps, [(weights, np.zeros(CLASSES))]
    )
    x, y = synthetic(10_000, np.random.default_rng(1))
    return {
        "cost": True,
        "dataset": f"synthetic, {size} records",
        "records": size,
        "mechanism": name,
        "epsilon": params.release.epsilon,
        "delta": params.release.delta,
        "neighbours": params.release.neighbours,
        "passes": whole.plan(params, facts).passes,
        "accuracy_mean": float(np.mean(model.predict(x) == y)),
        "accuracy_std": 0.0,
        "seconds": seconds,
        "cpu_seconds": round(worked, 2),
        "peak_memory_mb": round(peak_memory_mb(), 1),
    }


def gram_speed(width: int = 1029, rows: int = 1024, chunks: int = 40) -> dict[str, Any]:
    """Operations a second of the release's own accumulation against a plain product of two square matrices,
    both on all cores.
    """
    from airlock.models.features.rows import normalise
    from stages.release.passes import Chunk, bounded_map, gram_of

    random = np.random.default_rng(0)
    made = normalise(np.rint(random.standard_normal((rows, width)) * 1000))
    chunk = Chunk(made, np.zeros(rows, np.int32), np.ones(rows, np.uint8))
    start = time.perf_counter()
    for part in bounded_map(lambda _: gram_of(chunk), range(chunks)):
        assert part.shape == (width, width)
    ours = chunks * rows * width * (width + 1) / (time.perf_counter() - start)
    square = random.standard_normal((2048, 2048))
    square @ square
    start = time.perf_counter()
    for _ in range(4):
        square @ square
    plain = 4 * 2 * 2048**3 / (time.perf_counter() - start)
    empty = {
        "epsilon": None,
        "delta": None,
        "neighbours": "none",
        "passes": 0,
        "accuracy_mean": 0.0,
        "accuracy_std": 0.0,
    }
    speeds = {"gram_gflops": ours / 1e9, "matmul_gflops": plain / 1e9, "gram_fraction": ours / plain}
    return {
        "cost": True,
        "dataset": "speed",
        "mechanism": "gram",
        **empty,
        "seconds": 0.0,
        "peak_memory_mb": 0.0,
        **speeds,
    }


def draw(rows: list[dict[str, Any]]) -> None:
    """Seconds and memory against records, both axes logarithmic."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    lines = {
        name: sorted(
            (row["records"], row["seconds"], row["peak_memory_mb"])
            for row in rows
            if "records" in row and row["mechanism"] == name
        )
        for name in MECHANISMS
    }
    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3), layout="constrained")
    for axis, index, title in zip(axes, (1, 2), ("seconds", "peak memory, MB"), strict=True):
        for name, points in lines.items():
            axis.plot([point[0] for point in points], [point[index] for point in points], "o-", label=name)
        axis.set(xscale="log", yscale="log", xlabel="records", title=title)
        axis.grid(alpha=0.3)
    axes[0].legend(fontsize=8)
    axes[1].set_ylim(10, 10_000)
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None})


if __name__ == "__main__":
    main()
