"""Make the pictures of the README: docs/boundary.svg from dvc.yaml, docs/accuracy.svg from bench/results, and
docs/report.png from the page of the last run.

Run from the project's top folder: python docs/pictures.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from airlock.compare.comparison import ComparisonRow, load
from airlock.compare.papers import canvas, keep
from airlock.evidence.picture import picture
from airlock.evidence.revisions import load_graph

HERE = Path(__file__).parent
RESULTS = Path("bench/results")
# Mechanism and reading of the rows that are drawn as lines, and how they are called.
LINES = {
    ("coefficients-iterated", "hog-2"): "ours, in rounds (coefficients-iterated)",
    ("coefficients", "hog-2"): "ours, 3 passes (coefficients, the default)",
    ("dp-sgd linear, same features (opacus)", ""): "DP-SGD, linear, same features (Opacus)",
    ("dp-sgd cnn (opacus)", ""): "DP-SGD, network, best of 24 settings (Opacus)",
}
PAPERS = {
    "adlm": "AdLM",
    "pcdbn": "pCDBN",
    "dp-mac": "DP-MAC",
    "optimized-noise": "optimized noise",
    "neuron-noise": "neuron noise",
}
PAGE = Path("data/report/report.html")
SIZE = "1200,1180"
QUIET_OPTIONS = (
    "headless",
    "disable-gpu",
    "disable-quic",
    "disable-background-networking",
    "disable-component-update",
    "disable-sync",
    "hide-scrollbars",
)


def draw_boundary() -> Path:
    """The rooms and what passes between them, as dvc.yaml declares it."""
    target = HERE / "boundary.svg"
    target.write_text(picture(load_graph(Path.cwd())) + "\n")
    return target


def draw_accuracy() -> Path:
    """MNIST: what is proven, as lines, and what the papers report
    at the epsilon that they claim, as crosses.
    """
    target, rows = HERE / "accuracy.svg", [row for row in load(RESULTS) if row.dataset == "mnist"]
    figure, axes = canvas()
    for (mechanism, reading), name in LINES.items():
        own = {
            row.epsilon: row.accuracy for row in rows if (row.mechanism, row.reading) == (mechanism, reading)
        }
        axes.plot(*zip(*sorted(own.items()), strict=True), marker="o", label=name)
    for mechanism, name in PAPERS.items():
        axes.plot(
            *zip(*reported(rows, mechanism), strict=True), "x", markersize=8, label=f"{name}, as published"
        )
    ticks = (0.05, 0.1, 0.3, 0.5, 1, 2, 3)
    axes.set(xscale="log", ylim=(0.84, 1.0), xlabel="epsilon", ylabel="test accuracy, MNIST")
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    keep(figure, target)
    return target


def reported(rows: list[ComparisonRow], mechanism: str) -> list[tuple[float, float]]:
    """(claimed epsilon, accuracy) as the mechanism's paper has them."""
    own = (row for row in rows if row.mechanism == mechanism and row.claimed and row.paper_accuracy)
    return sorted({(row.claimed or 0.0, row.paper_accuracy or 0.0) for row in own})


def photograph_report() -> Path:
    """The first screen of the report page, as Chromium shows it."""
    target, browser = HERE / "report.png", shutil.which("chromium")
    if browser is None or not PAGE.is_file():
        sys.exit("docs/report.png needs chromium (Debian package) and a page (dvc repro)")
    with tempfile.TemporaryDirectory() as profile:
        settings = (f"window-size={SIZE}", f"user-data-dir={profile}", f"screenshot={target}")
        flags = [f"--{flag}" for flag in (*QUIET_OPTIONS, "no-first-run", *settings)]
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses root with its sandbox on
        subprocess.run(
            [browser, *flags, PAGE.resolve().as_uri()], check=True, stderr=subprocess.DEVNULL, timeout=120
        )
    return target


if __name__ == "__main__":
    for made in (draw_boundary(), draw_accuracy(), photograph_report()):
        print(made.relative_to(Path.cwd()) if made.is_relative_to(Path.cwd()) else made)
