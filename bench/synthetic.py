"""Synthetic records beside OpenDP's, on the held-out tables: errors of one-way and two-way tables, accuracy of
gradient boosting that is trained on them, seconds.

    python -m bench.synthetic [--peer PYTHON] [--part held_out] [--epsilon 1] [--tools inputs mst aim]
    python -m bench.synthetic --page        # the table of docs/inputs.md, from cells that are there

PYTHON is that of an environment with `opendp[mbi]` and `opendp[polars]` (bench/synthetic_peer.py). Cells that
are in bench/results/synthetic.json are not computed again. Tables are compared on one grid that all tools
know: ten even bins of a number between its bounds, categories as they are.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import signal
import subprocess
import tempfile
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models import graphical
from airlock.models.bins import Binned, Bins, Column, even_edges, label_column
from airlock.models.distribution import distribution_of
from airlock.models.shares import shares_of
from airlock.models.synthesis import draw_bins, drawn_of
from airlock.params import Params
from airlock.records.encoding import Encoded, encode, pack
from airlock.records.generation import Drawn, records_of
from bench import keel

RESULTS = Path(__file__).parent / "results/synthetic.json"
DELTA, FOLDS, GRID_BINS = 1e-5, 2, 10
MORE, MANY, MOST = "inputs x16", 16, 40_000
"""A tool that draws more synthetic records than there are real ones, which costs nothing: so many times, at most."""
Integers = NDArray[np.int64]
Made = tuple[Any, float]
"""Encoded synthetic records, and seconds."""


class Reader:
    """Sealed records in memory."""

    chunks = 1

    def __init__(self, x: Any, y: Any) -> None:
        self._batch = pack(Encoded(x, y, np.ones(len(y), np.uint8)))

    def read(self, index: int) -> Any:
        return self._batch


def main() -> None:
    """Compute what is missing and print a line for each cell."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--peer", help="Python of an environment with opendp[mbi]")
    parser.add_argument("--part", default="held_out")
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--tools", nargs="*", default=["inputs", "coefficients", "real", "mst"])
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--limit", type=int, default=300, help="CPU seconds of a peer's run")
    parser.add_argument("--page", action="store_true", help="print what is known as Markdown")
    asked = parser.parse_args()
    if asked.page:
        print(page(json.loads(asked.results.read_text()), keel.names(asked.part), asked.epsilon, asked.folds))
        return
    for name in asked.tables or keel.names(asked.part):
        for fold in range(asked.folds):
            for tool in asked.tools:
                _cell(name, fold, tool, asked)


def _cell(name: str, fold: int, tool: str, asked: argparse.Namespace) -> None:
    rows = json.loads(asked.results.read_text()) if asked.results.exists() else []
    key = {"table": name, "fold": fold, "tool": tool, "epsilon": asked.epsilon}
    if any(all(row[part] == value for part, value in key.items()) for row in rows):
        return
    table = keel.load(name)
    train, test = split(len(table.y), fold)
    try:
        found = figures(table, train, test, tool, asked.epsilon, fold, asked.peer, asked.limit)
    except Unfinished as unfinished:
        found = {"unfinished_after_cpu_seconds": unfinished.seconds}
    row = {**key, **found}
    print(json.dumps(row), flush=True)
    rows = json.loads(asked.results.read_text()) if asked.results.exists() else []
    asked.results.write_text(json.dumps([*rows, row], indent=1) + "\n")


def page(rows: list[dict[str, Any]], names: list[str], epsilon: float, folds: int) -> str:
    """A line a table, and the means over all tables, and over those that a peer has a figure of."""
    rows = [row for row in rows if row["fold"] < folds]
    tools = ("inputs", "mst", "aim")
    asked = [("tv1", tools, 1), ("tv2", tools, 1), ("accuracy", (*tools, MORE, "coefficients", "real"), 100)]
    asked += [("tables_accuracy", ("inputs",), 100), ("seconds", tools, 1)]
    cells = [(figure, tool, factor) for figure, which, factor in asked for tool in which]

    def of(name: str, figure: str, tool: str, factor: int) -> float | None:
        known = {"table": name, "tool": tool, "epsilon": epsilon}
        found = [row for row in rows if all(row[part] == value for part, value in known.items())]
        values = [row[figure] for row in found if figure in row]
        return float(np.mean(values)) * factor if values else None

    def written(values: list[float | None]) -> str:
        digits = [1 if factor == 100 or figure == "seconds" else 3 for figure, _, factor in cells]
        return " | ".join(
            "-" if value is None else f"{value:.{digit}f}"
            for value, digit in zip(values, digits, strict=True)
        )

    table = {name: [of(name, *cell) for cell in cells] for name in names}
    lines = [f"| {name} | {written(values)} |" for name, values in table.items()]
    for peer in tools:
        place = cells.index(("tv2", peer, 1))
        shared = [values for values in table.values() if values[place] is not None]
        means: list[float | None] = [
            None if not column or None in column else float(np.mean(np.array(column, float)))
            for column in zip(*shared, strict=True)
        ]
        if shared:
            lines.append(f"| mean of {len(shared)} with {peer} | {written(means)} |")
    head = " | ".join(f"{figure} {tool}" for figure, tool, _ in cells)
    return "\n".join([f"| table | {head} |", "|" + "---|" * (len(cells) + 1), *lines])


class Unfinished(Exception):
    """A peer's run took more than it was given."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"not finished after {seconds} CPU seconds")
        self.seconds = seconds


def split(n: int, fold: int) -> tuple[Integers, Integers]:
    """Four fifths to train on, one to judge on."""
    order = np.random.default_rng(fold).permutation(n)
    return order[: n * 4 // 5], order[n * 4 // 5 :]


def figures(
    table: keel.Table,
    train: Integers,
    test: Integers,
    tool: str,
    epsilon: float,
    seed: int,
    peer: str | None,
    limit: int,
) -> dict[str, Any]:
    """What one tool does with one part of one table; seconds are of the processor."""
    x, y = table.x[train], table.y[train]
    if tool == "coefficients":
        started = time.process_time()
        accuracy = direct(table, train, test, epsilon, seed)
        return {"accuracy": accuracy, "seconds": time.process_time() - started}
    grid = common_grid(table)
    if tool == "real":
        return {"accuracy": boosted(x, y, table, test), "tv1": 0.0, "tv2": 0.0, "seconds": 0.0}
    if tool.startswith("inputs"):
        made, seconds, own = ours(table, x, y, test, epsilon, seed, tool)
    else:
        made, seconds = others(table, grid, x, y, epsilon, seed, tool, peer, limit)
        own = {}
    one, two = errors(grid.of(x, y), grid.of(made.x, made.y), grid.sizes)
    return {
        "accuracy": boosted(made.x, made.y, table, test),
        "tv1": one,
        "tv2": two,
        "seconds": seconds,
        **own,
    }


def common_grid(table: keel.Table) -> Bins:
    """Ten even bins of a number, categories as they are."""
    columns = [Column.from_json(one) for one in table.facts(1).columns or ()]
    return Bins(
        (
            *(Binned(column, even_edges(column, GRID_BINS)) for column in columns),
            Binned(label_column(keel.LABEL, table.schema.label.classes)),
        )
    )


def ours(
    table: keel.Table, x: Any, y: Any, test: Integers, epsilon: float, seed: int, tool: str
) -> tuple[Any, float, dict[str, Any]]:
    """The release, and synthetic records from it; beside them the model from the tables themselves."""
    importlib.import_module("scipy.optimize")  # Imports are not counted, nor are those of peers.
    from airlock.models.binned import BinnedModel, fit
    from stages.release.mechanisms import inputs

    started = time.process_time()
    params = Params.model_validate({"release": {"mechanism": "inputs", "epsilon": epsilon, "delta": DELTA}})
    tensors, details = inputs.make(
        params, table.facts(len(y)), Reader(x, y), key=bytes([seed] * 32), release_id=f"bench {seed}"
    )
    details = {**json.loads(json.dumps(details)), "data": {"n": len(y)}}
    known = distribution_of(details, tensors)
    random = np.random.default_rng(seed)
    shares = shares_of(known)
    bins = (
        graphical.draw_bins(known, shares, len(y), seed)
        if tool == "inputs mbi"
        else draw_bins(shares, max(len(y), min(MANY * len(y), MOST)) if tool == MORE else len(y), random)
    )
    made = encode(records_of(table.schema, *drawn_of(known, shares, bins, random), random), table.schema)
    seconds = time.process_time() - started
    last = len(known.names) - 1
    found = fit(known.tables, list(range(last)), last)
    model = BinnedModel(
        "bins", "tabular", (x.shape[1],), table.schema.label.classes, [], [],
        bins=known.bins, weight=found.weight, offset=found.offset,
    )  # fmt: skip
    return made, seconds, {"tables_accuracy": float(np.mean(model.predict(table.x[test]) == table.y[test]))}


def others(
    table: keel.Table,
    grid: Bins,
    x: Any,
    y: Any,
    epsilon: float,
    seed: int,
    tool: str,
    peer: str | None,
    limit: int,
) -> Made:
    """A peer's synthetic bins, as values spread evenly in them.

    Raises:
        Unfinished: it took more CPU seconds than `limit`.
    """
    if peer is None:
        raise SystemExit("--peer says which Python has opendp[mbi]")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(source, bins=grid.of(x, y), sizes=np.array(grid.sizes))
        script = Path(__file__).with_name("synthetic_peer.py")
        done = subprocess.run(
            # -P: this folder has a module `numbers`, which is not Python's.
            [peer, "-P", str(script), tool, str(epsilon), str(DELTA), str(seed), str(source), str(target)],
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5)),
        )
        if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
            raise Unfinished(limit)
        done.check_returncode()
        found = np.load(target)
        bins, seconds = found["bins"], float(found["seconds"])
    random, drawn = np.random.default_rng(seed), []
    for place, one in enumerate(grid.columns[:-1]):
        if one.column.divided:
            ends = np.array([0.0, *one.edges, 1.0])
            drawn.append(Drawn(interval=(ends[bins[:, place]], ends[bins[:, place] + 1])))
        else:
            drawn.append(Drawn(choice=bins[:, place]))
    return encode(records_of(table.schema, drawn, bins[:, -1], random), table.schema), seconds


def errors(true: Integers, made: Integers, sizes: tuple[int, ...]) -> tuple[float, float]:
    """Mean total-variation distance of all tables of one column, and of all of two."""

    def apart(columns: tuple[int, ...]) -> float:
        shares = [np.zeros([sizes[column] for column in columns]) for _ in range(2)]
        for share, bins in zip(shares, (true, made), strict=True):
            np.add.at(share, tuple(bins[:, column] for column in columns), 1 / len(bins))
        return float(np.abs(shares[0] - shares[1]).sum()) / 2

    one, two = ([apart(found) for found in combinations(range(len(sizes)), many)] for many in (1, 2))
    return float(np.mean(one)), float(np.mean(two))


def boosted(x: Any, y: Any, table: keel.Table, test: Integers) -> float:
    """Accuracy on real records of gradient boosting that is trained on these."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    if len(np.unique(y)) < 2:
        return float(np.mean(table.y[test] == y[0]))
    model = HistGradientBoostingClassifier(max_iter=60, random_state=0).fit(x, y)
    return float(np.mean(model.predict(table.x[test]) == table.y[test]))


def direct(table: keel.Table, train: Integers, test: Integers, epsilon: float, seed: int) -> float:
    """Accuracy of the default mechanism, trained for the label alone."""
    from bench.tables_beside import airlock

    scores, _ = airlock(table, train, test, epsilon, "auto", seed)
    return float(np.mean(scores.argmax(axis=1) == table.y[test]))


if __name__ == "__main__":
    main()
