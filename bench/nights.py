"""Many nights for one price, beside the naive ways: accuracy of every night's model, three keys.

    python -m bench.nights magic penbased mnist     # each is resumed where it stopped
    python -m bench.nights mnist --ways one,nights   # some of the ways
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
from stages.release.mechanisms import coefficients, recipes
from stages.release.passes import Chunk, Records

RESULTS = Path(__file__).parent / "results/nights"
PARTS, FIRST, KEYS = 64, 8, 3
EPSILON, DELTA = 1.0, 1e-5
SHOWN = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64)
EVERY = range(1, PARTS + 1)
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
    inputs: NDArray[np.float64] | None
    test_rows: NDArray[np.int16]
    test_labels: NDArray[np.int32]
    facts: Facts
    features: str

    def part(self, start: int, end: int) -> Part:
        """A range of the records."""
        inputs = None if self.inputs is None else self.inputs[start:end]
        return Part(self.rows[start:end], self.labels[start:end], inputs)


@dataclass(frozen=True)
class Part:
    """Rows in the place of sealed records."""

    rows: NDArray[np.int16]
    labels: NDArray[np.int32]
    inputs: NDArray[np.float64] | None = None

    @property
    def chunks(self) -> int:
        return max(1, -(-len(self.labels) // CHUNK))


class KeptRecords(Records):
    """Passes over rows that were made before."""

    def _chunk(self, index: int) -> Chunk:
        part: Any = self._reader
        place = slice(index * CHUNK, (index + 1) * CHUNK)
        labels = part.labels[place]
        inputs = None if part.inputs is None else part.inputs[place]
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

    inputs = x[order] if facts.kind == "tabular" else None
    labels_of = (y[order].astype(np.int32), test_y.astype(np.int32))
    return Data(made(x[order]), labels_of[0], inputs, made(test_x), labels_of[1], facts, features)


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
    asked: Params, facts: Facts, parts: tuple[Part, Part], key: bytes, name: str, **rest: Any
) -> Released:
    """Geometry from the first part, sums from the second."""
    first = _geometry(asked, facts.first, parts[0], key)
    return coefficients.make(asked, facts, parts[1], key=key, release_id=name, relevance=first, **rest)


def once(data: Data, start: int, end: int, epsilon: float, key: bytes) -> float:
    """One release of a range of records."""
    asked = params(data.features, epsilon=epsilon)
    facts, part = replace(data.facts, n=end - start), data.part(start, end)
    return accuracy(
        data,
        release(asked, facts, (part, part), key, "one"),
        end - start,
        coefficients.plan(asked, facts),
    )


def _night(
    asked: Params,
    facts: Facts,
    number: int,
    before: int,
    begun: int,
    part: Part,
    key: bytes,
    folder: Path,
    first: Part | None = None,
) -> tuple[Released, Facts]:
    """One night, after `before` records of earlier ones, `begun` of them on the first."""
    facts = replace(facts, n=len(part.labels))
    if number > 1:
        told = {
            "number": number,
            "before": before,
            "history": "h",
            "first": {"n": begun, "fingerprint": "first"},
        }
        facts = replace(facts, fingerprint=f"night {number}", night=told)
    former = f"night {number - 1}" if number > 1 else None
    horizon = asked.release.horizon or 1
    memory = Nights("night 1", number, horizon, former, f"night {number}", key, folder)
    parts = (first or part, part)
    return release(asked, facts, parts, key, f"night {number}", nights=memory), facts


def nights(
    data: Data, key: bytes, first: int = 1, strategy: str = "auto", shown: Collection[int] = ()
) -> Iterator[tuple[int, float]]:
    """Every shown night's model, by the number of parts in it; the first batch has `first` parts."""
    size, horizon = len(data.labels) // PARTS, PARTS - first + 1
    asked = params(data.features, horizon=horizon, strategy=strategy)
    edges = [0, *(size * part for part in range(first, PARTS)), len(data.labels)]
    parts = [data.part(start, end) for start, end in itertools.pairwise(edges)]
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate(parts, start=1):
            made, facts = _night(
                asked, data.facts, number, edges[number - 1], edges[1], part, key, Path(folder), parts[0]
            )
            if first + number - 1 in (shown or SHOWN):
                model = accuracy(data, made, edges[number], coefficients.plan(asked, facts))
                yield first + number - 1, model


def _by_strategy(way: str, data: Data, key: bytes) -> Iterator[tuple[int, float]]:
    """The nights of one way: equal ones, or eight parts in the first batch; by the strategies that were there first
    where these are named.
    """
    if way in ("nights", "eight"):
        yield from nights(
            data, key, 1 if way == "nights" else FIRST, shown=EVERY if way == "nights" else SHOWN
        )
        return
    name: continual.Name = "independent" if way == "independent" else "square-root"
    with mock.patch.object(continual, "choose", lambda count: continual.strategy_of(name, count)):
        yield from nights(data, key, FIRST, "square-root")


def run(name: str, ways: Collection[str] = tuple(WAYS)) -> None:
    """Every key by every way that is asked for; what is in the file is not made again."""
    file = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    data = load(name)
    size, total = len(data.labels) // PARTS, len(data.labels)
    mu = gaussian.mu_at(EPSILON, DELTA)
    small = gaussian.epsilon_at(mu / PARTS**0.5, DELTA)
    for number in range(KEYS):
        key = bytes([number]) * 32
        for way in ways:
            if f"{way} {number}" in found:
                continue
            if way == "one":
                made: Any = once(data, 0, total, EPSILON, key)
            elif way == "split":
                made = once(data, 0, total, small, key)
            elif way == "alone":
                made = {night: once(data, size * (night - 1), size * night, EPSILON, key) for night in EVERY}
            else:
                made = dict(_by_strategy(way, data, key))
            found[f"{way} {number}"] = made
            file.write_text(json.dumps(found, indent=1) + "\n")
            print(name, way, number, made, flush=True)
    found |= {"records": total, "features": data.features}
    file.write_text(json.dumps(found, indent=1) + "\n")


def flat(count: int) -> None:
    """Processor seconds of a night and bytes that are kept, for rows of 65: of the first nights and of the last."""
    size, rows, random = 16, 32, np.random.default_rng(0)
    name = f"hybrid-48-1@nx{size}"
    labels = tuple(str(number) for number in range(10))
    facts = Facts("flat", True, "tabular", rows, 0, (size,), labels, "s", "bench", layout=f"nx{size}")
    asked, made = params(name, horizon=count), feature_map(name, "tabular", (size,))
    said = []
    with tempfile.TemporaryDirectory() as folder:
        for night in range(1, count + 1):
            inputs = random.random((rows, size))
            records = made(inputs, np.ones(rows, np.uint8)).astype(np.int16)
            part = Part(records, random.integers(0, 10, rows).astype(np.int32), inputs)
            start = time.process_time()
            _night(asked, facts, night, rows * (night - 1), rows, part, bytes(32), Path(folder))
            seconds = time.process_time() - start
            if night > 2:
                file_of(Path(folder), f"night {night - 2}").unlink()  # as the runner does
            said.append((night, seconds, sum(path.stat().st_size for path in Path(folder).iterdir())))
    tenth = count // 10
    means = {
        f"{first} to {first + tenth - 1}": round(
            float(np.mean([one[1] for one in said[first - 1 : first + tenth - 1]])), 4
        )
        for first in (2, tenth + 1, count // 2 + 1, count - tenth + 1)
    }
    found = {
        "nights": count,
        "row": made.width + 1,
        "mean_seconds_of_nights": means,
        "longest_seconds": round(max(one[1] for one in said[1:]), 3),
        "bytes": {f"{night}": said[night - 1][2] for night in (2, tenth, count // 2, count)},
        "largest_bytes": max(one[2] for one in said),
    }
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
    recipes.open_records = lambda recipe, facts, part, *_: KeptRecords(
        part, feature_map(recipe.features, facts.kind, facts.shape), facts.shape
    )
    if sys.argv[1:2] == ["--flat"]:
        flat(int(sys.argv[2]))
    elif sys.argv[1:2] == ["--page"]:
        (RESULTS / "nights.md").write_text(page())
        picture(Path(__file__).parents[1] / "docs/nights.svg")
    else:
        *names, last = sys.argv[1:]
        asked = last.split(",") if names[-1:] == ["--ways"] else tuple(WAYS)
        for wanted in names[:-1] if names[-1:] == ["--ways"] else (*names, last):
            run(wanted, asked)
