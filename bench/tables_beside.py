"""Tables beside what a tabular user would otherwise choose: DP-EBM, diffprivlib, Opacus, and scikit-learn without
privacy.

    python -m bench.tables_beside [--tools TOOL ...] [--tables TABLE ...] [--epsilons 3 ...] [--splits N] [--draws N]
    python -m bench.tables_beside --again      one split of the held-out tables at epsilon 1, all tools, in one run

The same splits (80/20), bounds, epsilon and delta for all; DP-EBM's learning rate is chosen for it on a
validation fifth. Cells go to bench/results/tables/beside.jsonl as they come and are not made twice. Every
epsilon of one split comes before the next split. `--draws` repeats each private cell with further noise on
the same split: where tests are few, one draw says little. `--again` makes cells anew whatever is known, each table
with all tools before the next, and writes them to bench/results/tables/one_run.jsonl when all are made: seconds
compare there. Imports are outside the seconds of every tool. diffprivlib and interpret-core have environments of
their own, made in .peers when they are first needed: they want different versions of scikit-learn.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.softmax import softmax
from airlock.models.measures import calibration_error
from bench import keel

RESULTS = Path(__file__).parent / "results/tables/beside.jsonl"
ONE_RUN = RESULTS.with_name("one_run.jsonl")
PEERS = Path(__file__).with_name("tables_peers.py")
PINNED = {
    "diffprivlib": ("diffprivlib==0.6.6", "scikit-learn==1.5.2"),
    "dp-ebm": ("interpret-core==0.7.8", "pandas==2.3.3", "scikit-learn==1.9.1"),
}
CELL = ("table", "split", "epsilon", "tool", "draw")
EPSILONS, SPLITS, DELTA = (1.0, 0.5, 3.0), 3, 1e-5
PRIVATE = ("airlock", "airlock coefficients", "diffprivlib", "opacus linear", "dp-ebm")
OPEN = ("logistic regression", "gradient boosting")
Scores = NDArray[np.float64]
Cell = tuple[str, int, float | None, str, int]
"""See CELL."""


class PeerError(Exception):
    """Another tool came to no answer."""


def main() -> None:
    """Make the missing cells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--tools", nargs="*", default=[*OPEN, *PRIVATE])
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--draws", type=int, default=1, help="of noise, for each split")
    parser.add_argument("--again", action="store_true", help="all tools in one run, epsilon 1, one split")
    asked = parser.parse_args()
    if asked.again:
        one_run(asked.tables or keel.names("held_out"), asked.tools)
        return
    known = [*keel.names("held_out"), *keel.names("report_only")]
    tables = asked.tables or [name for name in known if keel.has(name)]
    done = {tuple(row.get(name, 0) for name in CELL) for row in rows()}
    for split in range(asked.splits):
        for epsilon in asked.epsilons:
            for tool in asked.tools:
                for table, draw in itertools.product(tables, range(asked.draws)):
                    unnoisy = tool in OPEN
                    cell = (table, split, None if unnoisy else epsilon, tool, 0 if unnoisy else draw)
                    if cell not in done:
                        done.add(cell)
                        for row in made(cell, epsilon):
                            keep(row)


def one_run(tables: Sequence[str], tools: Sequence[str]) -> None:
    """All tools on one split of these tables at epsilon 1, table by table; kept when the last one is done."""
    measure(tables[0], 0, 1.0, "airlock")  # Imports what it needs.
    found = []
    for table, tool in itertools.product(tables, tools):
        for row in made((table, 0, None if tool in OPEN else 1.0, tool, 0), 1.0):
            found.append(row)
            print(f"{table} {tool}: {100 * row['accuracy']:.1f} %, {row['cpu_seconds']:.2f} s", flush=True)
    ONE_RUN.write_text("".join(json.dumps(row) + "\n" for row in found))


def made(cell: Cell, epsilon: float) -> Iterator[dict[str, Any]]:
    """The row of a cell; none where the tool itself fails, which is said and does not stop the others."""
    table, split, _, tool, draw = cell
    try:
        said = measure(table, split, epsilon, tool, draw)
    except PeerError as error:
        print(f"left out: {error}", flush=True)
        return
    yield {**dict(zip(CELL, cell, strict=True)), **said}


def rows() -> list[dict[str, Any]]:
    """All cells so far."""
    return [json.loads(line) for line in RESULTS.read_text().splitlines()] if RESULTS.exists() else []


def keep(row: dict[str, Any]) -> None:
    """Add a cell."""
    with RESULTS.open("a") as file:
        file.write(json.dumps(row) + "\n")


def measure(name: str, split: int, epsilon: float, tool: str, draw: int = 0) -> dict[str, Any]:
    """Accuracy, area under the curve and seconds of one tool on one split, with one draw of its noise."""
    table = keel.load(name)
    order = np.random.default_rng(
        [int(hashlib.sha256(name.encode()).hexdigest()[:8], 16), split]
    ).permutation(len(table.y))
    held, kept = order[: len(order) // 5], order[len(order) // 5 :]
    brought(tool)
    start, worked = time.perf_counter(), time.process_time()
    said: dict[str, Any] = {}
    if tool in OPEN:
        scores = without_privacy(table, kept, held, tool)
    elif tool == "opacus linear":
        scores = opacus(table, kept, held, epsilon)
    elif tool.startswith("airlock"):
        mechanism = "coefficients" if " " in tool else "auto"
        scores, said = airlock(table, kept, held, epsilon, mechanism, split, draw=draw)
    else:
        scores, said = peer(table, kept, held, epsilon, tool)
    seconds = said.pop("seconds", time.perf_counter() - start)
    spent = said.pop("cpu_seconds", round(time.process_time() - worked, 3))
    right = float(np.mean(scores.argmax(axis=1) == table.y[held]))
    if tool.startswith("airlock"):
        said["calibration_error"] = round(
            calibration_error(softmax(scores), table.y[held].astype(np.int64)), 4
        )
    took = {"seconds": round(seconds, 3), "cpu_seconds": spent}
    return {"accuracy": right, "auc": area(scores, table.y[held]), **took, **said}


def brought(tool: str) -> None:
    """Import what a tool of this process needs, so that its seconds are without it."""
    if tool in OPEN:
        import sklearn.ensemble
        import sklearn.linear_model  # noqa: F401
    elif tool == "opacus linear":
        import opacus  # noqa: F401


def area(scores: Scores, y: NDArray[np.int32]) -> float | None:
    """Mean over classes of one against the rest, of those that the test part has."""
    from sklearn.metrics import roc_auc_score

    found = [label for label in range(scores.shape[1]) if 0 < np.sum(y == label) < len(y)]
    return float(np.mean([roc_auc_score(y == label, scores[:, label]) for label in found])) if found else None


def airlock(
    table: keel.Table,
    kept: Any,
    held: Any,
    epsilon: float,
    mechanism: str,
    split: int,
    *,
    draw: int = 0,
    quantiles: bool = False,
) -> tuple[Scores, dict[str, Any]]:
    """A real release of sealed records, and the model trained from it."""
    from airlock.inside.manifest import Manifest
    from airlock.inside.sealed import SealedReader, SealedWriter
    from airlock.models.features.choice import settle
    from airlock.params import Params
    from airlock.records.encoding import Encoded, pack
    from stages.mechanisms import mechanism as found

    release = {"mechanism": mechanism, "epsilon": epsilon, "delta": DELTA}
    facts = table.facts(len(kept))
    relevance = {"mode": "off", "quantiles": quantiles}
    params = settle(Params.model_validate({"release": release, "relevance": relevance}), facts)
    name = params.release.mechanism
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
        file, key = Path(folder) / "train.sealed", bytes([split]) * 32
        with SealedWriter(file, key) as writer:
            writer.write(pack(Encoded(table.x[kept], table.y[kept], np.ones(len(kept), np.uint8))))
        start, worked = time.perf_counter(), time.process_time()
        plan = found(name).plan(params, facts)
        with SealedReader(file, key) as reader:
            tensors, details = found(name).make(
                params, facts, reader, key=key, release_id=f"{split} {epsilon}" + f" {draw}" * bool(draw)
            )
        data = {"kind": "tabular", "n": facts.n, "shape": list(facts.shape), "labels": list(facts.labels)}
        told = {"data": {**data, "schema": facts.schema}, **details}
        made = Manifest(
            "bench", name, plan.version, plan.parameters, "record", plan.proven.neighbours, None, plan.proven,
            plan.passes, plan.interactive, "", {}, told,
        )  # fmt: skip
        model = found(name, "open").train(params.train, made, tensors).model
        seconds, worked = time.perf_counter() - start, time.process_time() - worked
    return model.logits(table.x[held]), {
        "seconds": seconds,
        "cpu_seconds": round(worked, 3),
        "features": params.release.features.partition("@")[0],
        "passes": plan.passes,
        "epsilon_proven": plan.proven.epsilon,
    }


def without_privacy(table: keel.Table, kept: Any, held: Any, tool: str) -> Scores:
    """scikit-learn at its defaults, on the encoded columns."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression

    made = LogisticRegression(max_iter=2000) if tool == OPEN[0] else HistGradientBoostingClassifier()
    made.fit(table.x[kept], table.y[kept])
    scores = np.zeros((len(held), len(table.schema.label.classes)))
    scores[:, made.classes_] = made.predict_proba(table.x[held])
    return scores


def opacus(table: keel.Table, kept: Any, held: Any, epsilon: float) -> Scores:
    """DP-SGD on a linear model of the encoded columns: 20 epochs, batches of a tenth, clip 1, rate 0.5."""
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    x = torch.as_tensor(2 * table.x - 1, dtype=torch.float32)
    y = torch.as_tensor(table.y, dtype=torch.int64)
    network = torch.nn.Linear(x.shape[1], len(table.schema.label.classes))
    optimiser = torch.optim.SGD(network.parameters(), lr=0.5)
    loader = DataLoader(TensorDataset(x[kept], y[kept]), batch_size=max(1, len(kept) // 10))
    network, optimiser, loader = PrivacyEngine(accountant="prv").make_private_with_epsilon(
        module=network, optimizer=optimiser, data_loader=loader, target_epsilon=epsilon, target_delta=DELTA,
        epochs=20, max_grad_norm=1.0,
    )  # fmt: skip
    for _ in range(20):
        for records, labels in loader:
            if len(labels):
                optimiser.zero_grad()
                torch.nn.functional.cross_entropy(network(records), labels).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
    with torch.no_grad():
        return np.asarray(network(x[held]).numpy(), dtype=np.float64)


def peer(table: keel.Table, kept: Any, held: Any, epsilon: float, tool: str) -> tuple[Scores, dict[str, Any]]:
    """A tool that needs other packages, in their own process."""
    columns = table.schema.columns
    raw = np.zeros((len(table.y), len(columns)))
    for place, column in enumerate(columns):
        values = table.records.column(column.name).to_pylist()
        levels = {level: index for index, level in enumerate(column.categories or ())}
        raw[:, place] = [levels[value] if levels else value for value in values]
    one_hot = np.concatenate(
        [np.full(len(column.categories or "n"), bool(column.categories)) for column in columns]
    )
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
        task = Path(folder) / "task.npz"
        np.savez(
            task, raw=raw[kept], raw_test=raw[held], x=table.x[kept], x_test=table.x[held], y=table.y[kept],
            classes=len(table.schema.label.classes), nominal=[bool(column.categories) for column in columns],
            bounds=[column.bounds or (0.0, 1.0) for column in columns], one_hot=one_hot, columns=len(columns),
        )  # fmt: skip
        # -P: numbers.py beside this file is not the library's module of that name.
        command = [str(environment(tool)), "-P", str(PEERS), str(task), tool, str(epsilon), str(DELTA)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerError(f"{tool} failed on {table.schema.name}: {done.stderr[-400:]}")
    said = json.loads(done.stdout.splitlines()[-1])
    return np.array(said.pop("scores")), said


def environment(tool: str) -> Path:
    """A tool's own interpreter, made when it is first needed."""
    folder = Path(".peers") / tool
    python = folder / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *PINNED[tool]], check=True)
    return python.absolute()


if __name__ == "__main__":
    main()
