"""Many nights for one price, beside the naive ways: accuracy of every night's model, three keys.

    python -m bench.nights magic penbased mnist     # each is resumed where it stopped
    python -m bench.nights --page                    # bench/results/nights/nights.md and docs/nights.svg
    python -m bench.nights --flat 1000               # seconds and bytes of so many simulated nights

The mechanism's own functions release (its prices, exact sums and keyed noise); feature rows are made once, and the
wall, the ledger and DVC are left out. Records are cut into 64 equal parts: each is a night, or the first eight are the
first batch and every other one is a night. Settings were named before anything was run: images as they are by default,
tables through `hybrid-128-1`.
"""

from __future__ import annotations

import gzip
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from airlock.inside.manifest import Manifest
from airlock.inside.nights import Nights, file_of
from airlock.models.features.choice import choose
from airlock.models.features.features import feature_map
from airlock.models.features.projection import steps_of
from airlock.params import Params, TrainParams
from airlock.privacy import continual, gaussian
from airlock.privacy.plan import Facts
from stages.mechanisms import Released
from stages.open.mechanisms import coefficients as training
from stages.release.mechanisms import coefficients
from stages.release.passes import Chunk, Records

RESULTS = Path(__file__).parent / "results/nights"
PARTS, FIRST, KEYS = 64, 8, 3
EPSILON, DELTA = 1.0, 1e-5
SHOWN = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
CHUNK = 2000
WAYS = {
    "one": "one release of all records",
    "nights": "64 equal nights",
    "eight": "eight parts at first, then nights",
    "root": "the same, square-root",
    "independent": "the same, independent noise",
    "alone": "each batch alone",
    "split": "all records again every night, budget split over 64",
}


@dataclass(frozen=True)
class Data:
    """Feature rows of a data set in a fixed random order, and of its test records."""

    rows: NDArray[np.int16]
    labels: NDArray[np.int32]
    test_rows: NDArray[np.int16]
    test_labels: NDArray[np.int32]
    facts: Facts
    features: str


@dataclass(frozen=True)
class Part:
    """Rows in the place of sealed records."""

    rows: NDArray[np.int16]
    labels: NDArray[np.int32]

    @property
    def chunks(self) -> int:
        return max(1, -(-len(self.labels) // CHUNK))


class KeptRecords(Records):
    """Passes over rows that were made before."""

    def _chunk(self, index: int) -> Chunk:
        part: Any = self._reader
        place = slice(index * CHUNK, (index + 1) * CHUNK)
        labels = part.labels[place]
        # Averages cost their share of the budget whatever they are of; nothing here looks at them.
        inputs = np.zeros((len(labels), *self._shape)) if len(self._shape) == 1 else None
        valid = np.ones(len(labels), np.uint8)
        return Chunk(part.rows[place].astype(np.float64), labels, valid, inputs=inputs).after(self.steps)


def params(
    features: str, *, epsilon: float = EPSILON, horizon: int | None = None, strategy: str = "auto"
) -> Params:
    """Of one way."""
    release = {
        "mechanism": "coefficients",
        "options": {"strategy": strategy} if horizon else {},
        "epsilon": epsilon,
        "delta": DELTA,
        "features": features,
        "horizon": horizon,
    }
    return Params.model_validate({"release": release})


def load(name: str) -> Data:
    """A data set by name: mnist, or a table of KEEL."""
    if name == "mnist":
        x, y, test_x, test_y = _mnist()
        labels = tuple(str(digit) for digit in range(10))
        facts = Facts("mnist", True, "image", len(y), 0, (28, 28, 1), labels, "s", "bench")
        features = choose(params("auto").release, facts).features
    else:
        from bench import keel

        table = keel.load(name)
        order = np.random.default_rng(0).permutation(len(table.y))
        cut = len(order) * 4 // 5
        x, y, test_x, test_y = (
            one for part in (order[:cut], order[cut:]) for one in (table.x[part], table.y[part])
        )
        facts = table.facts(len(y))
        features = choose(params("hybrid-128-1").release, facts).features
    order = np.random.default_rng(1).permutation(len(y))
    rows = feature_map(features, facts.kind, facts.shape)

    def made(part: Any) -> NDArray[np.int16]:
        cuts = range(0, len(part), CHUNK)
        ones = np.ones(CHUNK, np.uint8)
        return np.concatenate(
            [rows(part[at : at + CHUNK], ones[: len(part[at : at + CHUNK])]).astype(np.int16) for at in cuts]
        )

    return Data(
        made(x[order]), y[order].astype(np.int32), made(test_x), test_y.astype(np.int32), facts, features
    )


def _mnist() -> tuple[Any, ...]:
    import os

    folder = Path(os.environ["AIRLOCK_DATA_HOME"]) / "mnist"

    def read(kind: str, what: str, skip: int) -> Any:
        data = gzip.decompress((folder / f"{kind}-{what}-ubyte.gz").read_bytes())
        return np.frombuffer(data, np.uint8, offset=skip)

    found = []
    for kind in ("train", "t10k"):
        found += [read(kind, "images-idx3", 16).reshape(-1, 28, 28, 1), read(kind, "labels-idx1", 8)]
    return tuple(found)


def accuracy(data: Data, made: Released, n: int, plan: Any) -> float:
    """Of the model trained from a release, in per cent."""
    tensors, details = made
    facts = data.facts
    about = {"kind": facts.kind, "n": n, "shape": list(facts.shape), "labels": list(facts.labels)}
    release = Manifest(
        release_id="id",
        mechanism=plan.mechanism,
        version=plan.version,
        parameters=plan.parameters,
        unit="record",
        neighbours="zero-out",
        claimed=None,
        proven=plan.proven,
        passes=plan.passes,
        interactive=False,
        fingerprint="f",
        files={},
        details={"data": about, **details},
    )
    (weights, _), *_ = training.head(TrainParams(), release, tensors)[0]
    rows = data.test_rows.astype(np.float64)
    for step in steps_of(tensors, details["bias"]):
        rows = step(rows, np.ones(len(rows), np.uint8))
    return 100 * float(((rows @ weights).argmax(axis=1) == data.test_labels).mean())


def _geometry(asked: Params, facts: Facts, part: Part, key: bytes) -> Released | None:
    """Made once for all nights, as the archive does."""
    name = (asked.release.epsilon, asked.release.horizon, id(part), key)
    if name not in _made:
        _made.clear()
        plan = coefficients.relevance(asked, facts)
        made = (
            coefficients.make_relevance(asked, facts, part, key=key, release_id="geometry") if plan else None
        )
        _made[name] = made, part
    return _made[name][0]


_made: dict[Any, tuple[Released | None, Part]] = {}


def release(
    data: Data, asked: Params, facts: Facts, parts: tuple[Part, Part], key: bytes, name: str, **rest: Any
) -> Released:
    """Geometry from the first part, sums from the second."""
    first = _geometry(asked, facts.first, parts[0], key)
    return coefficients.make(asked, facts, parts[1], key=key, release_id=name, relevance=first, **rest)


def once(data: Data, start: int, end: int, epsilon: float, key: bytes) -> float:
    """One release of a range of records."""
    asked = params(data.features, epsilon=epsilon)
    facts, part = replace(data.facts, n=end - start), Part(data.rows[start:end], data.labels[start:end])
    return accuracy(
        data,
        release(data, asked, facts, (part, part), key, "one"),
        end - start,
        coefficients.plan(asked, facts),
    )


def nights(
    data: Data, key: bytes, first: int = 1, strategy: str = "auto", shown: Collection[int] = ()
) -> Iterator[tuple[int, float]]:
    """Every shown night's model, by the number of parts in it; the first batch has `first` parts."""
    size, horizon = len(data.labels) // PARTS, PARTS - first + 1
    asked = params(data.features, horizon=horizon, strategy=strategy)
    edges = [0, *(size * part for part in range(first, PARTS)), len(data.labels)]
    parts = [Part(data.rows[a:b], data.labels[a:b]) for a, b in itertools.pairwise(edges)]
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate(parts, start=1):
            facts = replace(data.facts, n=len(part.labels))
            if number > 1:
                begun = {"n": edges[1], "fingerprint": "first"}
                told = {"number": number, "before": edges[number - 1], "history": "h", "first": begun}
                facts = replace(facts, fingerprint=f"night {number}", night=told)
            former = f"night {number - 1}" if number > 1 else None
            memory = Nights("night 1", number, horizon, former, f"night {number}", key, Path(folder))
            made = release(data, asked, facts, (parts[0], part), key, f"night {number}", nights=memory)
            if first + number - 1 in (shown or SHOWN):
                model = accuracy(data, made, edges[number], coefficients.plan(asked, facts))
                yield first + number - 1, model


def _by_strategy(way: str, data: Data, key: bytes) -> Iterator[tuple[int, float]]:
    """The nights of one way: equal ones, or eight parts in the first batch; by the strategies that were there first
    where these are named.
    """
    if way in ("nights", "eight"):
        yield from nights(data, key, 1 if way == "nights" else FIRST)
        return
    name: continual.Name = "independent" if way == "independent" else "square-root"
    with mock.patch.object(continual, "choose", lambda count: continual.strategy_of(name, count)):
        yield from nights(data, key, FIRST, "square-root")


def run(name: str) -> None:
    """All ways, every key; what is in the file is not made again."""
    file = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    data = load(name)
    size, total = len(data.labels) // PARTS, len(data.labels)
    mu = gaussian.mu_at(EPSILON, DELTA)
    small = gaussian.epsilon_at(mu / PARTS**0.5, DELTA)
    for number in range(KEYS):
        key = bytes([number]) * 32
        for way in WAYS:
            if f"{way} {number}" in found:
                continue
            if way == "one":
                made: Any = once(data, 0, total, EPSILON, key)
            elif way == "split":
                made = once(data, 0, total, small, key)
            elif way == "alone":
                made = {night: once(data, size * (night - 1), size * night, EPSILON, key) for night in SHOWN}
            else:
                made = dict(_by_strategy(way, data, key))
            found[f"{way} {number}"] = made
            file.write_text(json.dumps(found, indent=1) + "\n")
            print(name, way, number, made, flush=True)
    found |= {"records": total, "features": data.features}
    file.write_text(json.dumps(found, indent=1) + "\n")


def flat(count: int) -> None:
    """Seconds of a night's noise and bytes that are kept, for rows of the length that images have."""
    size, classes, said = 65, 10, []
    strategy = continual.choose(count)
    with tempfile.TemporaryDirectory() as folder:
        random = np.random.default_rng(0)
        for night in range(1, count + 1):
            start = time.process_time()
            former = f"{night - 1}" if night > 1 else None
            memory = Nights("0", night, count, former, f"{night}", bytes(32), Path(folder))
            left = {}
            for purpose, shape in (("gram", (size, size)), ("cross", (size, classes))):
                before, total = memory.recall(purpose, strategy, shape)
                drawn = np.rint(random.normal(0, 1e12, shape)).astype(np.int64)
                drawn = np.triu(drawn) + np.triu(drawn, 1).T if purpose == "gram" else drawn
                noise, after = continual.tonight(strategy, before, drawn)
                left[purpose] = (after, total + noise)
            memory.keep(left)
            if night > 2:
                file_of(Path(folder), f"{night - 2}").unlink()
            kept = sum(path.stat().st_size for path in Path(folder).iterdir())
            said.append((night, time.process_time() - start, kept))
    marks = [said[at - 1] for at in sorted({10, 100, count // 2, count})]
    tail = float(np.mean([seconds for _, seconds, _ in said[-50:]]))
    text = [{"night": night, "seconds": round(seconds, 3), "bytes": kept} for night, seconds, kept in marks]
    found = {"nights": count, "row": size, "marks": text, "mean_seconds_of_the_last_50": round(tail, 3),
             "largest_bytes": max(kept for _, _, kept in said)}  # fmt: skip
    (RESULTS / "flat.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found))


def page() -> str:
    """The table of all data sets that were run."""
    lines = [
        "| after the last night, accuracy in % | " + " | ".join(WAYS.values()) + " |",
        "|---|" + "---|" * len(WAYS),
    ]
    for file in sorted(RESULTS.glob("*.json")):
        found = json.loads(file.read_text())
        if "features" not in found:
            continue
        cells = []
        for way in WAYS:
            last = [made if isinstance(made, float) else made[str(SHOWN[-1])] for made in _keys(found, way)]
            cells.append(f"{np.mean(last):.2f} ± {np.std(last):.2f}" if last else "not run")
        lines.append(f"| {file.stem} ({found['records']:,} records) | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _keys(found: dict[str, Any], way: str) -> list[Any]:
    return [found[f"{way} {number}"] for number in range(KEYS) if f"{way} {number}" in found]


def picture(target: Path) -> None:
    """Accuracy against the night."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "airlock", "svg.fonttype": "none", "font.size": 10})
    import matplotlib.pyplot as plt

    files = [file for file in sorted(RESULTS.glob("*.json")) if "features" in json.loads(file.read_text())]
    figure, axes = plt.subplots(1, len(files), figsize=(4 * len(files), 3.2), squeeze=False)
    for axis, file in zip(axes[0], files, strict=True):
        found = json.loads(file.read_text())
        for colour, way in enumerate(("nights", "eight", "root", "independent", "alone")):
            made = _keys(found, way)
            shown = [night for night in SHOWN if made and str(night) in made[0]]
            means = [np.mean([one[str(night)] for one in made]) for night in shown]
            axis.plot(shown, means, marker="o", markersize=3, color=f"C{colour}", label=WAYS[way])
        for way, style in (("one", "--"), ("split", ":")):
            if made := _keys(found, way):
                axis.axhline(np.mean(made), linestyle=style, color="black", label=WAYS[way])
        axis.set(title=file.stem, xlabel="parts so far", ylabel="accuracy, %", xscale="log")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    coefficients.open_records = lambda recipe, facts, part, *_: KeptRecords(
        part, feature_map(recipe.features, facts.kind, facts.shape), facts.shape
    )
    if sys.argv[1:2] == ["--flat"]:
        flat(int(sys.argv[2]))
    elif sys.argv[1:2] == ["--page"]:
        (RESULTS / "nights.md").write_text(page())
        picture(Path(__file__).parents[1] / "docs/nights.svg")
    else:
        for wanted in sys.argv[1:]:
            run(wanted)
