"""The headline figures of the five papers as cells that can be run: which command has each, what it is asked, what
bench/results knows of it and where its row goes.

One process runs one cell: its rows are kept beside its state until it is finished.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from airlock.compare.comparison import UNIT_PIXELS
from airlock.compare.headline import part_of_batches
from airlock.files import replacing
from bench.papers import every_step

Row = dict[str, Any]
Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Cell:
    """One figure.

    Attributes:
        name: letters, digits and dashes.
        paper: whose.
        kind: a name in KINDS.
        asked: what its function is given.
    """

    name: str
    paper: str
    kind: str
    asked: dict[str, Any]

    @property
    def command(self) -> Kind:
        """That runs it."""
        return KINDS[self.kind]


class Kind:
    """One command of bench/papers."""

    def run(self, asked: Row, state: Path) -> Row:
        """Go on from `state` to the end; the row."""
        raise NotImplementedError

    def known(self, asked: Row) -> Row | None:
        """Its row in bench/results."""
        raise NotImplementedError

    def finished(self, asked: Row, row: Row) -> bool:
        """Whether a row is of the whole length."""
        raise NotImplementedError

    def keep(self, row: Row) -> None:
        """To bench/results, by the command's own way."""
        raise NotImplementedError

    def begin(self, known: Row, state: Path) -> None:
        """Take over what the repository has of an unfinished one, whose row so far is `known`."""

    def shortened(self, asked: Row, epochs: int) -> Row:
        """The same with so many epochs."""
        return {**asked, "epochs": epochs}

    def curve(self, row: Row) -> Points:
        """Accuracy (or error) after some epochs, as the row's own figure was measured."""
        figure = figure_of(row)
        return [] if figure is None else [(row.get("epochs") or 0, figure)]


def figure_of(row: Row) -> float | None:
    """Accuracy; of autoencoders the mean squared error."""
    for name in ("accuracy", "accuracy_mean", "mean_squared_error"):
        if row.get(name) is not None:
            return float(row[name])
    return None


def points(curve: dict[str, float]) -> Points:
    """In the order of epochs."""
    return sorted((int(epoch), value) for epoch, value in curve.items())


class Adlm(Kind):
    """bench/papers/adlm_program.py."""

    def run(self, asked: Row, state: Path) -> Row:
        from bench.papers import adlm_program

        adlm_program.ROWS = adlm_program.EVERY_STEP = state / "rows.json"
        adlm_program.run(
            asked["mechanism"],
            asked["epsilon"],
            asked["epochs"],
            asked["read"],
            state,
            asked["dataset"],
            fresh=asked["every_step"],
        )
        (row,) = adlm_program.kept_rows(adlm_program.ROWS)
        return row

    def known(self, asked: Row) -> Row | None:
        from bench.papers import adlm_program

        part = f"{asked['read']:,} of each {adlm_program.SETTINGS[asked['dataset']].batch:,}"
        wanted = (asked["dataset"], asked["mechanism"], asked["epsilon"])
        whole = asked["read"] == adlm_program.SETTINGS[asked["dataset"]].batch
        for row in adlm_program.kept_rows(self._file(fresh=asked["every_step"])):
            about = row["dataset"], row["mechanism"], row["epsilon"]
            read = part_of_batches(row["reading"]) == ("" if whole else part)
            if about == wanted and read and UNIT_PIXELS not in row["reading"]:
                return row
        return None

    def _file(self, *, fresh: bool) -> Path:
        from bench.papers import adlm_program

        return adlm_program.EVERY_STEP if fresh else adlm_program.ROWS

    def finished(self, asked: Row, row: Row) -> bool:
        return bool(row["epochs"] >= asked["epochs"])

    def keep(self, row: Row) -> None:
        from bench.papers import adlm_program

        adlm_program.keep(row, self._file(fresh=every_step.READING in row["reading"]))

    def begin(self, known: Row, state: Path) -> None:
        """Curve, network and released relevance: a training goes on from the same bytes, on another machine too."""
        from bench.papers import adlm_program

        for file in adlm_program.STATE.iterdir() if adlm_program.STATE.exists() else ():
            shutil.copy2(file, state / file.name)
        (state / "rows.json").write_text(json.dumps({"runs": [known]}))

    def curve(self, row: Row) -> Points:
        return points(row["curves"]["batch"])


class Pcdbn(Kind):
    """`bench.papers.pcdbn paper`."""

    def run(self, asked: Row, state: Path) -> Row:
        from bench.papers import pcdbn
        from bench.papers.pcdbn_paper import paper

        pcdbn.RESULTS, pcdbn.ROWS = state, state / "rows.json"
        for key in range(asked["keys"]):
            paper(asked["epsilon"], asked["options"], state, key)
        (row,) = pcdbn.rows()
        return row

    def known(self, asked: Row) -> Row | None:
        from bench.papers import pcdbn

        options = {"preset": "authors-code", **asked["options"]}
        wanted = ("pcdbn", asked["epsilon"], options)
        found = [
            row
            for row in pcdbn.rows()
            if (row["mechanism"], row["epsilon"], row.get("options")) == wanted and row.get("curves")
        ]
        return max(found, key=lambda row: int(row["records"]), default=None)

    def finished(self, asked: Row, row: Row) -> bool:
        from bench.papers.pcdbn_paper import POINTS

        return bool(
            row["epochs"] >= asked["options"].get("epochs", POINTS[-1]) and row["keys"] >= asked["keys"]
        )

    def keep(self, row: Row) -> None:
        from bench.papers import pcdbn

        pcdbn.keep(row)

    def shortened(self, asked: Row, epochs: int) -> Row:
        return {**asked, "options": {**asked["options"], "epochs": epochs}}

    def curve(self, row: Row) -> Points:
        return points(row["curves"]["0"]["stored"])


class Interactive(Kind):
    """bench/papers/interactive.py."""

    def run(self, asked: Row, state: Path) -> Row:
        from bench.papers import interactive

        interactive.RESULTS = state / "rows.json"
        if asked["options"].get("lower") == "raw":
            interactive.RESULTS.write_text(json.dumps({"runs": []}))
            interactive.remember(state / "lower.safetensors")
        train, test = (interactive.READERS[asked["dataset"]](part) for part in (True, False))
        return interactive.run(asked, train, test, state)

    def known(self, asked: Row) -> Row | None:
        from bench.papers import interactive

        found = [
            row
            for row in json.loads(interactive.RESULTS.read_text())["runs"]
            if all(row[name] == value for name, value in asked.items())
        ]
        return max(found, key=lambda row: int(row["records"]), default=None)

    def finished(self, asked: Row, row: Row) -> bool:
        return True

    def keep(self, row: Row) -> None:
        from bench.papers import interactive

        document = json.loads(interactive.RESULTS.read_text())
        same = interactive._identity(row)
        document["runs"] = [one for one in document["runs"] if interactive._identity(one) != same] + [row]
        interactive._write(document)

    def shortened(self, asked: Row, epochs: int) -> Row:
        return {**asked, "options": {**asked["options"], "epochs": epochs}}


class Neurons(Kind):
    """bench/papers/neurons.py; what is kept is each release that was judged."""

    def run(self, asked: Row, state: Path) -> Row:
        import tempfile

        from bench.papers import neurons

        shutil.rmtree(state / "tmp", ignore_errors=True)
        (state / "tmp").mkdir()
        tempfile.tempdir = str(state / "tmp")
        remember_runs(state)
        return neurons.measure(asked)

    def known(self, asked: Row) -> Row | None:
        from bench.papers import neurons

        names = ("dataset", "mechanism", "epsilon", "options", "reading")
        found = (row for row in json.loads(neurons.RESULTS.read_text()))
        return next((row for row in found if all(row[name] == asked[name] for name in names)), None)

    def finished(self, asked: Row, row: Row) -> bool:
        return bool(row["keys"] >= asked["keys"])

    def keep(self, row: Row) -> None:
        from bench.flagship.accuracy import keep
        from bench.papers import neurons

        keep(row, neurons.RESULTS)

    def shortened(self, asked: Row, epochs: int) -> Row:
        return {**asked, "options": {**asked["options"], "epochs": epochs}}


class Behaviour(Kind):
    """`behaviour-published` of bench/papers/behaviour.py; a few minutes in one piece."""

    def run(self, asked: Row, state: Path) -> Row:
        from bench.papers import behaviour
        from bench.papers.behaviour_data import load

        task, epsilon, keys = (asked[name] for name in ("task", "epsilon", "keys"))
        if "epochs" in asked:
            behaviour.READINGS["published"]["options"]["epochs"] = asked["epochs"]
        return behaviour.cell(load(task), task, "published", "record", epsilon, keys)

    def known(self, asked: Row) -> Row | None:
        from bench.papers import behaviour

        wanted = (asked["task"], "published", asked["epsilon"])
        found = (row for row in behaviour.results() if "features" in row)
        return next((row for row in found if (row["task"], row["features"], row["epsilon"]) == wanted), None)

    def finished(self, asked: Row, row: Row) -> bool:
        from bench.papers import behaviour

        length = asked.get("epochs", behaviour.READINGS["published"]["options"]["epochs"])
        return bool(row["keys"] >= asked["keys"] and row["epochs"] >= length)

    def keep(self, row: Row) -> None:
        from bench.papers import behaviour

        behaviour._keep([row])


KINDS: dict[str, Kind] = {
    "behaviour": Behaviour(),
    "adlm": Adlm(),
    "pcdbn": Pcdbn(),
    "interactive": Interactive(),
    "neurons": Neurons(),
}


def remember_runs(folder: Path) -> None:
    """Releases that were trained from and judged are not made again: each is a function of its parameters and key."""
    from bench.flagship import pipeline

    plain = pipeline.Pipeline.run

    def run(self: Any, params: Any, noise: int, **more: Any) -> pipeline.PipelineResult:
        asked = json.dumps([params.model_dump(mode="json"), noise, more], sort_keys=True)
        file = folder / f"{sha256(asked.encode()).hexdigest()[:16]}.json"
        if not file.exists():
            found = plain(self, params, noise, **more)
            with replacing(file) as fresh:
                fresh.write_text(json.dumps(asdict(found)))
        return pipeline.PipelineResult(**json.loads(file.read_text()))

    setattr(pipeline.Pipeline, "run", run)  # noqa: B010


def cells() -> Iterator[Cell]:
    """All of them, those of a paper together, the short ones first."""
    yield from adlm_cells()
    yield from pcdbn_cells()
    yield from behaviour_cells()
    yield from interactive_cells()
    yield from neuron_cells()


def adlm_cells() -> Iterator[Cell]:
    """Parts of 120, the same with raw records read in every step, whole batches; CIFAR-10."""
    from bench.papers.adlm_program import SETTINGS

    def cell(name: str, epsilon: float, read: int, dataset: str = "mnist", *, fresh: bool = False) -> Cell:
        whole = read == SETTINGS[dataset].batch
        words = (name, dataset, f"{epsilon:g}", "whole" if whole else str(read), *(["every-step"] * fresh))
        asked = {
            "mechanism": name,
            "epsilon": epsilon,
            "dataset": dataset,
            "epochs": SETTINGS[dataset].epochs,
        }
        return Cell(_joined(*words), "AdLM", "adlm", {**asked, "read": read, "every_step": fresh})

    for fresh in (False, True):
        for name in ("adlm", "ilm"):
            for epsilon in (0.5, 0.25, 2.0):
                yield cell(name, epsilon, 120, fresh=fresh)
    for name in ("adlm", "ilm"):
        for epsilon in (0.5, 0.25, 2.0):
            yield cell(name, epsilon, 1800)
    for read in (720, 7200):
        for name in ("adlm", "ilm"):
            yield cell(name, 2.5, read, "cifar10-jpeg")


def pcdbn_cells() -> Iterator[Cell]:
    """Epsilons and keys (Fig. 5), degrees (Fig. 6), whole batches."""
    part = {"step_records": 120}
    for epsilon in (0.5, 0.1, 1.0, 2.0, 8.0):
        asked = {"epsilon": epsilon, "options": part, "keys": 3 if epsilon == 0.5 else 1}
        yield Cell(_joined("pcdbn", "mnist", f"{epsilon:g}", "120"), "pCDBN", "pcdbn", asked)
    for degree in (1, 3, 5, 7):
        options = {**part, "approximation": f"chebyshev-{degree}"}
        name = _joined("pcdbn", "mnist", "0.5", "120", f"chebyshev-{degree}")
        yield Cell(name, "pCDBN", "pcdbn", {"epsilon": 0.5, "options": options, "keys": 1})
    yield Cell("pcdbn-mnist-0-5-whole", "pCDBN", "pcdbn", {"epsilon": 0.5, "options": {}, "keys": 1})


def behaviour_cells() -> Iterator[Cell]:
    """pCDBN's Fig. 4, on simulated data."""
    from bench.papers import behaviour
    from bench.papers.behaviour_data import TASKS

    for epsilon in behaviour.PAPER:
        asked = {"task": "classification", "epsilon": epsilon, "keys": behaviour.KEYS}
        asked["dataset"] = TASKS["classification"]
        yield Cell(
            _joined("behaviour", f"{epsilon:g}"),
            "pCDBN",
            "behaviour",
            asked | {"mechanism": "behaviour-published"},
        )


def interactive_cells() -> Iterator[Cell]:
    """DP-MAC as its authors' program has it, and Table 2's networks with that program's units and first weights;
    optimized noise as published, by its isotropic solution.
    """
    from bench.papers import interactive

    papers = {"dp-mac": "DP-MAC", "optimized-noise": "optimized noise"}
    for asked in interactive.cells():
        options = asked["options"]
        program = str(options.get("preset")).startswith("authors") and len(options) == 1
        published = options.get("calibration") == "published" and options.get("solution") != "alternating"
        table = str(options.get("preset")).startswith("paper") and options.get("initial") == "glorot"
        if asked["mechanism"] in papers and (program or published or table):
            more = options["preset"] if table else options.get("model", "")
            words = (asked["mechanism"], asked["dataset"], f"{asked['epsilon']:g}", more)
            yield Cell(_joined(*filter(None, words)), papers[asked["mechanism"]], "interactive", asked)


def neuron_cells() -> Iterator[Cell]:
    """Neuron noise as published, by the algorithm and by the prose."""
    from bench.papers import neurons

    for asked in neurons.cells():
        if asked["mechanism"] == "neuron-noise":
            words = ("neuron-noise", asked["dataset"], f"{asked['epsilon']:g}", asked["options"]["preset"])
            yield Cell(_joined(*words), "neuron noise", "neurons", asked)


def _joined(*words: str) -> str:
    return "-".join(words).replace(".", "-")


def metrics(row: Row, seconds: float | None) -> Row:
    """What DVC compares; the whole row is below `row`."""
    proven = row.get("proven")
    told = "infinity" if isinstance(proven, float) and math.isinf(proven) else proven
    return {
        "accuracy": row.get("accuracy", row.get("accuracy_mean")),
        **({"mean_squared_error": row["mean_squared_error"]} if row.get("mean_squared_error") else {}),
        "epochs": row.get("epochs"),
        "claimed": row.get("claimed"),
        "proven": told,
        "seconds": seconds,
        "row": row,
    }
