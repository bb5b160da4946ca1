"""`python -m bench.flagship.sweep PICTURE.svg`: accuracy against epsilon, from the experiments that `dvc exp
run --queue` made in this workspace.

Prints the table of docs/sweeps.md; run it where `dvc exp show` lists the sweep.
"""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

Points = Mapping[float, Sequence[tuple[float, float]]]


def read(listing: str) -> Points:
    """Accuracy and the non-private reference's, of every finished experiment, by epsilon.

    The baseline is not part of the sweep.
    """
    found: dict[float, list[tuple[float, float]]] = defaultdict(list)
    for row in csv.DictReader(io.StringIO(listing)):
        if row["typ"] != "baseline" and row["State"] in (
            "",
            "Success",
        ):  # one that still runs shows the baseline's figures
            found[float(row["release.epsilon"])].append(
                (float(row["accuracy"]), float(row["reference_accuracy"]))
            )
    return dict(sorted(found.items()))


def table(points: Points) -> str:
    """As Markdown."""
    lines = [
        "| epsilon | accuracy, mean | standard deviation | non-private reference | runs |",
        "| ---: | ---: | ---: | ---: | ---: |",
    ]
    for epsilon, runs in points.items():
        own, reference = [run[0] for run in runs], [run[1] for run in runs]
        spread = stdev(own) if len(own) > 1 else 0.0
        lines.append(
            f"| {epsilon:g} | {mean(own):.3f} | {spread:.3f} | {mean(reference):.3f} | {len(runs)} |"
        )
    return "\n".join(lines)


def draw(points: Points, target: Path) -> None:
    """Every run a dot, the means a line, the reference dashed; the same points give the same bytes."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "airlock", "svg.fonttype": "none", "font.size": 11})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for epsilon, runs in points.items():
        axes.plot([epsilon] * len(runs), [own for own, _ in runs], "o", color="#8fb3d9", markersize=4)
    epsilons = list(points)
    own, reference = ([mean(run[which] for run in runs) for runs in points.values()] for which in (0, 1))
    axes.plot(epsilons, own, "o-", color="#1d5fae", label="released, mean of the folds")
    axes.plot(epsilons, reference, "--", color="#55616a", label="non-private reference")
    axes.set(xscale="log", xlabel="epsilon of one release", ylabel="accuracy on the held-out fold")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", frameon=False)
    figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})


def main() -> None:
    """Read, draw, print."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m bench.flagship.sweep PICTURE.svg")
    listing = subprocess.run(
        ["dvc", "exp", "show", "--csv"], capture_output=True, text=True, check=True
    ).stdout
    points = read(listing)
    if not points:
        sys.exit(
            "no finished experiment here: queue some with `dvc exp run --queue` and start them with `dvc "
            "queue start`"
        )
    draw(points, Path(sys.argv[1]))
    print(table(points))


if __name__ == "__main__":
    main()
