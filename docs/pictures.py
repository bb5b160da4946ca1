"""Make the pictures of the README: docs/boundary.svg from dvc.yaml, docs/report.png from the page of the last run.

Run from the project's top folder: python docs/pictures.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from airlock.evidence.picture import picture
from airlock.evidence.revisions import load_graph

HERE = Path(__file__).parent
PAGE = Path("data/report/report.html")
SIZE = "1200,1180"
QUIET = (
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


def photograph_report() -> Path:
    """The first screen of the report page, as Chromium shows it."""
    target, browser = HERE / "report.png", shutil.which("chromium")
    if browser is None or not PAGE.is_file():
        sys.exit("docs/report.png needs chromium (Debian package) and a page (dvc repro)")
    with tempfile.TemporaryDirectory() as profile:
        settings = (f"window-size={SIZE}", f"user-data-dir={profile}", f"screenshot={target}")
        flags = [f"--{flag}" for flag in (*QUIET, "no-first-run", *settings)]
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses root with its sandbox on
        subprocess.run(
            [browser, *flags, PAGE.resolve().as_uri()], check=True, stderr=subprocess.DEVNULL, timeout=120
        )
    return target


if __name__ == "__main__":
    for made in (draw_boundary(), photograph_report()):
        print(made.relative_to(Path.cwd()) if made.is_relative_to(Path.cwd()) else made)
