"""docs/benchmarks.md from bench/results: every number in it comes from a file that a command wrote.

python -m bench.tables
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bench.beside_page import ONE_RUN, TABLES, in_one_run, mean_of, tables_beside

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs/benchmarks.md"
HEAD = """# Benchmarks

Made by `python -m bench.tables` from bench/results/*.json, which `make bench` writes (one run; `python -m bench \
--whole` every cell). Accuracy is on the \
test set (tables: 10 folds),
mean and standard deviation over noise keys, in per cent. The guarantee is proven, zero-out neighbours, \
noise on the integer grid,
every release charged to a scratch ledger. *Passes* is how often records are read. Seconds are from sealed \
records to trained model, on
two cores shared with other work: they compare within a run and promise nothing.
How the settings were chosen, and which of them had seen evaluated data: docs/mechanism.md, section 5.
"""
PICTURES = """### Maps of pictures, in rounds

`coefficients-iterated` on each map, accuracy by epsilon. `prior-1` was learned from generated pictures alone (`python
-m bench.prior.train`) and needs no matrix of rows: a mean, then 8 to 26 rounds after a public preparation (`python -m
bench.prior.measure`; rows of pictures are remembered between keys, so that its seconds above are without the map: 0.86
ms of one core a colour picture, 60,000 in 28 seconds on two free cores). Its constants were chosen on training images
of CIFAR-10 (bench/results/prior/choice.md); for grey pictures nothing was tried before these figures. `edges-1`
(orientations and Gabor moduli side by side) and `strokes-1` (the same of pictures made upright) were looked at on
training images of MNIST and Fashion-MNIST (docs/mechanism.md, section 5). Rows of 13 passes are of rounds without
momentum, as they were before. Published on CIFAR-10 without other data: 69.3 at 3 (scattering features, Tramer and
Boneh 2021) and 72.3 at 1 (DP-RandP, Tang et al. 2023: a network learned from images of random processes, trained on by
DP-SGD); ours are on a JPEG copy of it.
"""
PICTURE_SETS = ("cifar10-jpeg", "fashion-mnist", "mnist", "usps")
WIDE = """## What generous bounds cost

`python -m bench.tables_wide`: the default release of development tables at epsilon 1, three splits, the upper bound of
every number 1, 10 or 100 times as far from the lower one; as it is, and with `relevance.quantiles: true` (0.15
of the budget for noisy counts on a grid that is dense toward both bounds). No public fact tells that bounds are too
wide, so the owner says it. Where values fill a small part of the range that is neither near a bound nor near the
middle, the grid sees them in one or two bins, and less is gained. Five of the six tables were among those on which
the share was chosen. By the rule before the present one, and with 0.05 for the counts: 76.0 / 72.6 / 61.1 as it is,
74.6 / 74.7 / 75.0 with quantiles.
"""
NUMBERS = """## Numbers to predict

`python -m bench.numbers`: R^2 on the test fifth, mean of three splits, delta 1e-5, zero-out, proven, the same bounds
for all (what each file spans). *airlock* is `release.mechanism: auto`, *airlock coefficients* the closed form on the
linear map. Without privacy: scikit-learn's ridge regression and gradient boosting. AdaSSP (Wang 2018) is on the
encoded columns, zero-out too. How constants were chosen, on other tables: bench/results/tables/numbers.md. Seconds are
from a loaded machine, one core.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


def page() -> str:
    """All tables."""
    parts = [HEAD]
    sections = {
        "accuracy": "## Accuracy of the flagship mechanisms",
        "comparison": "## Beside DP-SGD, in one run",
        "relevance": "## Does relevance help? The same budget, spent in three ways",
        "scaling": "## Cost against the number of records",
    }
    for name, title in sections.items():
        file = RESULTS / f"{name}.json"
        if file.exists():
            rows = json.loads(file.read_text())
            parts += [title, "", table(rows), ""]
            parts += [beside(rows), ""] if name == "comparison" else []
            parts += [worked(rows), ""] if name == "scaling" else []
            parts += [PICTURES, "", pictures(rows), "", *same_map(), ""] if name == "accuracy" else []
            parts += (
                ["![Seconds and memory against the number of records](scaling.svg)", ""]
                if name == "scaling"
                else []
            )
    cells = RESULTS / "tables/beside.jsonl"
    if cells.exists():
        parts += [
            TABLES,
            "",
            tables_beside([json.loads(line) for line in cells.read_text().splitlines()]),
            "",
        ]
    run = RESULTS / "tables/one_run.jsonl"
    if run.exists():
        parts += [ONE_RUN, "", in_one_run([json.loads(line) for line in run.read_text().splitlines()]), ""]
    numbers = RESULTS / "tables/numbers.jsonl"
    if numbers.exists():
        parts += [
            NUMBERS,
            "",
            numbers_beside([json.loads(line) for line in numbers.read_text().splitlines()]),
            "",
        ]
    wide = RESULTS / "tables/wide.jsonl"
    if wide.exists():
        parts += [WIDE, "", wide_bounds([json.loads(line) for line in wide.read_text().splitlines()]), ""]
    return "\n".join(parts)


def same_map() -> list[str]:
    """Opacus' linear model and no privacy at all, on a map that ours was measured on (bench/prior/peers.py)."""
    file = RESULTS / "prior/peers.json"
    peers = json.loads(file.read_text()) if file.exists() else []
    lines = []
    for found in peers:
        if ": clip" in found["mechanism"]:
            continue
        at = "without privacy" if found["epsilon"] is None else f"at epsilon {found['epsilon']:g}"
        setting = found["setting"]
        how = (
            f", best of six on training pictures: clip {setting['clip']:g}, rate {setting['rate']:g}"
            if setting
            else ""
        )
        lines.append(
            f"{found['dataset']}, `{found['features']}`, {at}: **{100 * found['accuracy_mean']:.2f} %**, "
            f"{found['mechanism'].replace(', same map', '')}{how}."
        )
    return (
        ["On the same map (`python -m bench.prior.peers`):", "", *(f"- {line}" for line in lines)]
        if lines
        else []
    )


def worked(rows: list[dict[str, Any]]) -> str:
    """What rows cost where seconds mean little: the processor's own time, all threads together."""
    known = [row for row in rows if "cpu_seconds" in row]
    return "\n".join(
        f"`{row['mechanism']}` of {row['records']:,} records (the map that `auto` takes, {row['passes']} passes) took "
        f"{row['cpu_seconds']:.0f} seconds of one core; where its seconds above are more, the machine "
        "was loaded. Rows of the map are kept between passes up to 1 GiB: memory grows with the records up to there, "
        "and no further."
        for row in known
    )


def numbers_beside(cells: list[dict[str, Any]]) -> str:
    """R^2 of every tool on every table."""
    head = "| table | records | tool | 0.5 | 1 | 3 | without privacy | seconds at 1 |"
    lines = [head, "|" + "---|" * 8]
    for name in dict.fromkeys(cell["table"] for cell in cells):
        for tool in dict.fromkeys(cell["tool"] for cell in cells):
            own = [cell for cell in cells if (cell["table"], cell["tool"]) == (name, tool)]
            at = [[cell for cell in own if cell["epsilon"] == one] for one in (0.5, 1.0, 3.0, None)]
            figures = [mean_of(found, "r2", 1, 3) for found in at]
            seconds = mean_of(at[1] or at[3], "seconds", 1)
            lines.append(f"| {name} | {own[0]['records']:,} | {tool} | {' | '.join(figures)} | {seconds} |")
    return "\n".join(lines)


def wide_bounds(cells: list[dict[str, Any]]) -> str:
    """Accuracy against how much too far upper bounds are."""
    factors = sorted({cell["factor"] for cell in cells})
    ways = [(factor, asked) for asked in (False, True) for factor in factors]
    names = [f"{factor} times{', quantiles' if asked else ''}" for factor, asked in ways]
    lines = [f"| table | {' | '.join(names)} |", "|" + "---|" * (len(ways) + 1)]
    for name in (*dict.fromkeys(cell["table"] for cell in cells), "all"):
        own = [cell for cell in cells if name in (cell["table"], "all")]
        at = [[cell for cell in own if (cell["factor"], cell.get("quantiles", False)) == way] for way in ways]
        lines.append(f"| {name} | " + " | ".join(mean_of(found, "accuracy", 100) for found in at) + " |")
    return "\n".join(lines)


def beside(rows: list[dict[str, Any]]) -> str:
    """Each private mechanism against the convolutional network of the same run."""
    peer = next(row for row in rows if row["mechanism"] == "dp-sgd cnn (opacus)")
    lines = []
    for row in rows:
        if row["epsilon"] == peer["epsilon"] and row is not peer:
            points, share = (
                100 * (row["accuracy_mean"] - peer["accuracy_mean"]),
                peer["seconds"] / row["seconds"],
            )
            lines.append(
                f"- {row['mechanism']}: {points:+.2f} points against that network, "
                f"in 1/{share:.1f} of its time."
            )
    return "\n".join(lines)


def pictures(rows: list[dict[str, Any]]) -> str:
    """Rounds on every map of pictures: a row for each data set and map, a column for each epsilon."""
    shown = [
        one for one in rows if one["dataset"] in PICTURE_SETS and one["mechanism"] == "coefficients-iterated"
    ]
    epsilons = [0.1, 0.5, 1.0, 3.0, 8.0]
    lines = [
        "| data | map | " + " | ".join(map(_figure, epsilons)) + " |",
        "|---|---|" + "---|" * len(epsilons),
    ]
    for dataset, features in sorted({(one["dataset"], one["features"]) for one in shown}):
        own = {
            one["epsilon"]: one for one in shown if (one["dataset"], one["features"]) == (dataset, features)
        }
        cells = [f"{100 * own[one]['accuracy_mean']:.2f}" if one in own else "" for one in epsilons]
        lines.append(f"| {dataset} | {features} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def table(rows: list[dict[str, Any]]) -> str:
    """Rows of one results file."""
    columns = [
        "data",
        "mechanism",
        "epsilon",
        "delta",
        "passes",
        "accuracy",
        "keys",
        "seconds",
        "memory, MB",
    ]
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        if "gram_fraction" in row:
            continue
        name = row["mechanism"] + (f" ({row['features']})" if row.get("features") else "")
        accuracy = (
            f"{100 * row['accuracy_mean']:.2f} ± {100 * row['accuracy_std']:.2f}"
            if row["accuracy_mean"]
            else ""
        )
        cells = [
            row["dataset"],
            name,
            _figure(row["epsilon"]),
            _figure(row["delta"]),
            row["passes"] or "",
            accuracy,
        ]
        cells += [row.get("keys", ""), f"{row['seconds']:.1f}", f"{row['peak_memory_mb']:.0f}"]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    speeds = [row for row in rows if "gram_fraction" in row]
    texts = [
        f"\nA Gram matrix is accumulated at {100 * row['gram_fraction']:.0f} % of the speed of a plain "
        "matrix product in the same run.\n"
        for row in speeds
    ]
    return "\n".join(lines + texts)


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


if __name__ == "__main__":
    main()
