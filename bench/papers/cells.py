"""Full-length runs of the papers' headline figures, each a DVC experiment that goes on where it was stopped.

    python -m bench.papers.cells list                                             every cell, and what is known of it
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.cells run FOLDER --only adlm-mnist --minutes 60
    python -m bench.papers.cells show FOLDER                                      what was found there
    python -m bench.papers.cells collect FOLDER                                   and to bench/results

`run` makes a DVC project in FOLDER (outside this one: see bench/papers/headline/pipeline.yaml) and runs cells with
`dvc exp run`; `dvc exp show` and `dvc plots show` work there. A cell that is finished in FOLDER or in bench/results
is not run again (`--again`: only one of FOLDER is not). Whatever ends a run, the same command goes on from what
FOLDER/state/NAME has of it, and ends in the same row: after each epoch of AdLM, every hundred steps of the interactive
ones and epochs of pCDBN, after each release of neuron noise. Of AdLM a cell begins with the state that
bench/results/papers/state has. `seconds` are of the processor, and not told of a cell that was stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml

from bench.papers.experiments import ROW, STATE, Project
from bench.papers.headline_cells import Cell, Row, cells, figure_of, metrics

SECONDS = "AIRLOCK_CELL_SECONDS"
"""After which a stage ends itself."""
LONGEST = 10**8
HERE = Path(__file__).parent


def chosen(only: str, epochs: int | None = None) -> Iterator[Cell]:
    """Cells whose names begin so; with other epochs under a name of their own."""
    for cell in cells():
        if cell.name.startswith(only):
            shorter = {} if epochs is None else cell.command.shortened(cell.asked, epochs)
            name = cell.name if epochs is None else f"{cell.name}-epochs-{epochs}"
            yield replace(cell, name=name, asked=shorter or cell.asked)


def run(folder: Path, wanted: Iterator[Cell], most: int, minutes: float, *, again: bool) -> None:
    """Run at most `most` cells, and stop after so many minutes; `again`: whatever bench/results has."""
    end = time.monotonic() + 60 * minutes
    project = Project(folder, HERE / "headline")
    project.prepare()
    done = project.names()
    for cell in wanted:
        known = None if again else cell.command.known(cell.asked)
        if cell.name in done or (known and cell.command.finished(cell.asked, known)):
            continue
        left = int(min(end - time.monotonic(), LONGEST))
        if most == 0 or left < 1:
            return
        _begin(cell, known, folder / STATE / cell.name)
        try:
            row = replace(project, environment={SECONDS: str(left)}).run(cell.name, asdict(cell))
        except subprocess.CalledProcessError:
            if time.monotonic() < end - 1:
                raise
            print(f"{cell.name}: stopped by time; the same command goes on", flush=True)
            return
        print(_told(cell.name, row), flush=True)
        most -= 1


def _begin(cell: Cell, known: Row | None, state: Path) -> None:
    """A folder for its state, with what the repository has of it."""
    if not state.exists():
        state.mkdir(parents=True)
        if known:
            cell.command.begin(known, state)


def stage() -> None:
    """The cell of params.yaml, in the folder of the project: row.json and accuracy.csv."""
    from bench.flagship.accuracy import locked

    cell = Cell(**yaml.safe_load(Path("params.yaml").read_text()))
    signal.alarm(int(os.environ.get(SECONDS, "0")))
    state = Path(STATE).absolute() / cell.name
    state.mkdir(parents=True, exist_ok=True)
    # A stage whose DVC was killed may still be at work: then this one waits, and goes on from where it came.
    with locked(state):
        with (state / "pieces").open("a") as pieces:
            pieces.write(f"{os.getpid()}\n")
        row = cell.command.run(cell.asked, state)
    once = len((state / "pieces").read_text().splitlines()) == 1
    curve = "".join(f"{epoch:g},{value:.6g}\n" for epoch, value in cell.command.curve(row))
    Path("accuracy.csv").write_text("epoch,accuracy\n" + curve)
    found = metrics(row, round(time.process_time(), 1) if once else None)
    Path(ROW).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def collect(folder: Path) -> None:
    """Rows of finished experiments to bench/results, where those have less."""
    named, found = {cell.name: cell for cell in cells()}, 0
    for name, told in Project(folder, folder).rows():
        cell = named.get(name)  # of other epochs there is none
        known = cell and cell.command.known(cell.asked)
        if cell and not (known and cell.command.finished(cell.asked, known)):
            cell.command.keep(told["row"])
            found += 1
    print(f"{found} new")


def show(folder: Path) -> None:
    """Finished experiments, and what waits."""
    rows = dict(Project(folder, folder).rows())
    for name, row in sorted(rows.items()):
        print(_told(name, row))
    state = folder / STATE
    for waiting in sorted(one.name for one in state.iterdir()) if state.exists() else ():
        if waiting not in rows:
            print(f"{waiting}: begun; `run` goes on")


def _told(name: str, row: dict[str, Any]) -> str:
    figure = "error" if row["accuracy"] is None else "accuracy"
    value = row["mean_squared_error"] if row["accuracy"] is None else row["accuracy"]
    seconds = "" if row["seconds"] is None else f", {row['seconds']:g} s"
    return (
        f"{name}: {figure} {value:.4g}, {row['epochs']} epochs, claimed {row['claimed']}, "
        f"proven {row['proven']}{seconds}"
    )


def describe(cell: Cell) -> str:
    """One line of `list`."""
    row = cell.command.known(cell.asked)
    if row is None:
        return f"{cell.name:44} {cell.paper:16} not run"
    return f"{cell.name:44} {cell.paper:16} {_known(cell, row)}"


def _known(cell: Cell, row: Row) -> str:
    figure = figure_of(row)
    value = "?" if figure is None else f"{figure:.4g}"
    length = f", {row['epochs']:g} epochs" if row.get("epochs") else ""
    keys = f", {row['keys']} key{'s' if row['keys'] > 1 else ''}" if row.get("keys") else ""
    return f"{value}{length}{keys}, {'finished' if cell.command.finished(cell.asked, row) else 'goes on'}"


def main() -> None:
    """List, run, show or collect."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="what", required=True)
    listing = parts.add_parser("list", help="every cell, and what bench/results has of it")
    running = parts.add_parser("run", help="run cells as experiments, or go on with them")
    showing = parts.add_parser("show", help="what was found in a folder")
    collecting = parts.add_parser("collect", help="add what was found to bench/results")
    parts.add_parser("stage", help="what DVC runs, in a project's folder")
    for part in (running, showing, collecting):
        part.add_argument("folder", type=Path)
    for part in (listing, running):
        part.add_argument("--only", default="", metavar="PREFIX", help="cells whose names begin so")
    running.add_argument("--most", type=int, default=-1, metavar="N", help="so many of them at most")
    running.add_argument(
        "--minutes", type=float, default=1e9, metavar="M", help="stop after so many; the same command goes on"
    )
    running.add_argument("--epochs", type=int, metavar="N", help="in place of the papers'; not collected")
    running.add_argument("--again", action="store_true", help="also what bench/results has finished")
    asked = parser.parse_args()
    if asked.what == "list":
        print("\n".join(describe(cell) for cell in chosen(asked.only)))
    elif asked.what == "run":
        wanted = chosen(asked.only, asked.epochs)
        again = asked.again or asked.epochs is not None
        run(asked.folder.resolve(), wanted, asked.most, asked.minutes, again=again)
    elif asked.what == "stage":
        stage()
    else:
        {"show": show, "collect": collect}[asked.what](asked.folder)


if __name__ == "__main__":
    main()
