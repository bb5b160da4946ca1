"""A hook that hears which modules processes outside the wall load; a sandbox is not given it."""

from __future__ import annotations

from pathlib import Path

LISTENER = """
import os, sys
def _hear(event, arguments):
    if event == "import" and str(arguments[0]).partition(".")[0] in ("stages", "flows", "airlock"):
        with open(os.environ["AIRLOCK_IMPORT_LOG"], "a") as file:
            file.write(f"{arguments[0]}\\n")
sys.addaudithook(_hear)
"""


def listening(folder: Path) -> dict[str, str]:
    """The environment of a process that is to be heard; see `heard`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(LISTENER)
    return {"PYTHONPATH": str(folder), "AIRLOCK_IMPORT_LOG": str(folder / "heard.txt")}


def heard(folder: Path) -> set[str]:
    """The modules that were loaded."""
    return set((folder / "heard.txt").read_text().split())
