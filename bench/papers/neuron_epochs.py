"""Accuracy of neuron noise injection after every epoch: the paper's Figs. 5 to 7.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.neuron_epochs              tables: a few minutes of a core
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.neuron_epochs mnist        Fig. 7: minutes a curve
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.neuron_epochs mnist --batch 1800 --epsilon 0.1 --key 1
    --state FOLDER --minutes 9
    python -m bench.papers.neuron_epochs --draw                                        docs/papers/neuron-epochs.svg

The mechanism's own training (`algorithm`: Algorithms 1 and 2 to the letter), looked at between two steps; the panels
"non private" are the same network without noise. On tables the mean over the ten folds, 100 epochs as in the paper, of
`--iterations` steps instead of 3,000; on MNIST one key a curve (`--key`, 0 unless told), 25 epochs of 100 steps of 250
records or, with `--batch`, of the paper's 1,800 under the same noise: the ratios are those of 250, so that every bias
of a key begins where it does with them. `--after 250` begins with all parameters as batches of 250 left them.
On MNIST every epoch is written to bench/results/papers/neuron-epochs.json as it ends, and a command that was stopped,
or stopped itself after `--minutes`, goes on from `--state`; a curve that is there is not made again. Finished curves of
1,800 records a step make one row in bench/results/neurons.json, the mean over their keys.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from airlock.compare.figures import legend_below
from airlock.compare.papers import canvas
from airlock.compare.papers import keep as keep_picture
from bench.flagship.accuracy import FOLDS
from bench.flagship.accuracy import keep as keep_row
from bench.papers import neurons
from bench.papers.neurons import PAPER, PUBLISHED_SETTINGS

RESULTS = Path(__file__).parents[1] / "results/papers/neuron-epochs.json"
PICTURE = Path(__file__).parents[2] / "docs/papers/neuron-epochs.svg"
WITHOUT_NOISE = {"dermatology": 0.992, "wdbc": 0.995}
"""Table 1's last row."""
EPOCHS, ITERATIONS, PRETRAINING = 100, 10, 100
"""Epochs and steps in one of them, on tables; steps of pre-training, as in bench.papers.neurons."""
WHOLE = 1800
"""The paper's batch on MNIST."""
LOOKS = ((None, "#55616a"), (1.0, "#15803d"), (0.5, "#1d5fae"), (0.1, "#a8433b"))
KEYS = {1: "#a16207", 2: "#7e22ce"}
"""Colours of keys beyond the first one, on MNIST."""
"""Epsilon (None: without noise) and colour."""
Curve = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """How a curve is made: from which noise, after which batches, where its state is, until when, and who is told of
    every epoch.
    """

    key: int = 0
    after: int | None = None
    state: Path | None = None
    until: float = math.inf
    told: Callable[[list[float]], None] = lambda found: None


def options_of(dataset: str, iterations: int, batch: int | None) -> dict[str, Any]:
    """Of the release."""
    options = {"preset": "algorithm", **PUBLISHED_SETTINGS[dataset]}
    if dataset in FOLDS:
        before = max(1, PRETRAINING // iterations)
        return options | {"epochs": EPOCHS, "iterations": iterations, "pretraining_epochs": before}
    return options | ({"batch": batch} if batch else {})


def epochs_of(options: dict[str, Any]) -> int:
    """Of a whole curve."""
    from stages.release.papers.neuron import neuron_noise

    return int(options.get("epochs") or neuron_noise.SETTINGS[options["setting"]]["epochs"])


def measure(dataset: str, epsilon: float | None, options: dict[str, Any], way: Way) -> None:
    """Tell the mean curve over folds; entry e is after e + 1 epochs. Of images, every epoch as it ends."""
    from bench.flagship.pipeline import Pipeline

    folds = FOLDS.get(dataset, 0)
    release = {"mechanism": "neuron-noise", "epsilon": epsilon or 1.0, "options": options}
    curves: list[list[float]] = []
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
        pipeline = Pipeline(Path(folder), dataset)
        for fold in range(max(folds, 1)):
            params = pipeline.params(ingest={"folds": folds, "fold": fold}, release=release)
            pipeline.seal(params)
            asked = {"dataset": dataset, "epsilon": epsilon, "options": options}
            asked |= {"records": pipeline.facts.n, "folds": folds}
            if not folds:
                follow(pipeline, params, epsilon is not None, replace(way, told=teller(asked, way)))
                return
            curves.append(follow(pipeline, params, epsilon is not None, replace(way, key=fold)))
    means = [statistics.fmean(values) for values in zip(*curves, strict=True)]
    keep({**asked, "accuracies": means, "last": [curve[-1] for curve in curves]})


def teller(asked: Curve, way: Way) -> Callable[[list[float]], None]:
    """Who keeps a curve of images after every epoch."""

    def told(found: list[float]) -> None:
        begun = {"after": way.after} if way.after else {}
        keep({**asked, **begun, "key": way.key, "accuracies": found, "last": found[-1:]})
        print(asked["dataset"], asked["epsilon"], way.key, len(found), f"{100 * found[-1]:.1f} %", flush=True)

    return told


def follow(pipeline: Any, params: Any, noisy: bool, way: Way) -> list[float]:
    """Train as the mechanism does, and judge the network after every epoch on the held-out records."""
    from airlock.models.memory import keep_pages
    from airlock.models.papers.networks import build
    from bench.papers.neuron_course import Lean, put, walk
    from stages.release.keyed_noise import KeyedNoise
    from stages.release.papers.dp_sgd.dp_sgd import load
    from stages.release.papers.neuron import neuron_noise, training

    keep_pages()
    recipe, facts = neuron_noise.resolve(params, pipeline.facts), pipeline.facts
    data, held_out = load(pipeline.sealed(params), facts), load(holdout(pipeline, params), facts)
    network: Any = build(recipe.network, recipe.shape, recipe.classes, seed=training.SEED)
    network, noise = Lean(network) if facts.kind == "image" else network, {}
    if noisy:
        parts = training.proportions(known_ratios(recipe, data, facts, way.state), recipe)
        scales = parts * (training.sensitivity(data, recipe) / recipe.epsilons[0])
        noise = {"scales": scales, "keyed": KeyedNoise(bytes([way.key]) * 32, f"epochs {facts.population}")}
    descent = training.Descent(network, data, recipe, **noise)  # type: ignore[arg-type]
    keeper, earlier = (_keeper(recipe, facts, noisy, way, batch) for batch in (None, way.after))
    if way.after:
        put(descent, begun_from(earlier))
    return walk(descent, keeper, held_out, epochs=recipe.options.epochs or 1, until=way.until, told=way.told)


def begun_from(earlier: Any) -> Any:
    """The state in which batches of another size ended.

    Raises:
        SystemExit: there is none.
    """
    found = earlier.resume()
    if found is None:
        raise SystemExit("--after: make that curve first, with the same --key and --state")
    return found[1]


def _keeper(recipe: Any, facts: Any, noisy: bool, way: Way, batch: int | None) -> Any:
    """Of this curve, or of the one with batches of so many."""
    from stages.checkpoints import Checkpoint

    options = recipe.options.model_dump(mode="json") | ({"batch": batch} if batch else {})
    about = [facts.population, noisy, recipe.epsilons, options, way.key]
    return Checkpoint(way.state, _identity([*about, *([way.after] if way.after and not batch else [])]))


def known_ratios(recipe: Any, data: Any, facts: Any, state: Path | None) -> Any:
    """Contribution ratios, which depend on neither key nor epsilon, and here on no `--batch`; found once a state.

    Noise is drawn for the exact bytes of its scales: ratios that differ by a rounding would have other draws.
    """
    import torch

    from stages.checkpoints import Checkpoint
    from stages.release.papers.neuron import training

    setting = recipe.options.setting
    batch = (
        PUBLISHED_SETTINGS[setting].get("batch", recipe.options.batch) if setting else recipe.options.batch
    )
    recipe = replace(recipe, options=recipe.options.model_copy(update={"batch": batch}))
    keeper = Checkpoint(
        state, _identity(["ratios", facts.population, recipe.options.model_dump(mode="json"), facts.n])
    )
    earlier = keeper.resume()
    if earlier:
        return earlier[1]["ratios"].numpy()
    found = training.found_ratios(recipe, data)
    keeper.keep(0, {"ratios": torch.from_numpy(found)})
    return found


def _identity(about: list[Any]) -> str:
    return sha256(json.dumps(about).encode()).hexdigest()


def holdout(pipeline: Any, params: Any) -> Any:
    """The held-out records, through their door."""
    import pyarrow.parquet as pq

    from stages.release import perturb

    pipeline.open_holdout(params)
    return pq.ParquetFile(pipeline.workspace / perturb.HOLDOUT / "holdout.parquet").iter_batches(4096)


def collect(path: Path = neurons.RESULTS) -> None:
    """A row of the mean over keys, for each epsilon of which there are finished curves of the paper's batches. But for
    the batch it is asked for what the row of `bench.papers.neurons` is.
    """
    whole = [one for one in read() if one["options"].get("batch") == WHOLE and finished(one)]
    ends: dict[float, dict[int, float]] = {}
    for curve in whole:
        if not curve.get("after"):
            ends.setdefault(curve["epsilon"], {})[curve["key"]] = curve["accuracies"][-1]
    for row in json.loads(path.read_text()):
        about = row["dataset"], row["mechanism"], row["options"]
        if row["epsilon"] in ends and about == ("mnist", "neuron-noise", options_of("mnist", 0, None)):
            found = [ends[row["epsilon"]][key] for key in sorted(ends[row["epsilon"]])]
            told = {"accuracies": found, "accuracy_mean": statistics.fmean(found), "keys": len(found)}
            told |= {"accuracy_std": statistics.stdev(found) if len(found) > 1 else 0.0}
            about_batch = {"options": {**row["options"], "batch": WHOLE}, "epochs": epochs_of(row["options"])}
            unknown = {"seconds": None, "peak_memory_mb": None}
            reading = f"{row['reading']}, batches of {WHOLE:,}"
            keep_row({**row, **told, **about_batch, **unknown, "reading": reading}, path)


def draw(curves: list[Curve]) -> None:
    """A panel a data set: ours as lines, as far as they came, crosses where the paper ends."""
    shown = [name for name in PAPER if any(curve["dataset"] == name for curve in curves)]
    figure, first = canvas((3.7 * len(shown) + 0.4, 5.0))
    first.remove()
    for panel, dataset in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        for epsilon, colour in LOOKS:
            paper = PAPER[dataset].get(epsilon) if epsilon else WITHOUT_NOISE.get(dataset)
            own = [one for one in curves if (one["dataset"], one["epsilon"]) == (dataset, epsilon)]
            own = [one for one in own if not one.get("after")]
            for curve in sorted(own, key=_named):
                up = [100 * value for value in curve["accuracies"]]
                shade = KEYS.get(curve.get("key") or 0, colour)
                style = ":" if curve["options"].get("batch") == WHOLE else "-"
                panel.plot(range(1, len(up) + 1), up, style, label=_label(curve), color=shade)
            if paper and own:
                panel.plot([epochs_of(own[0]["options"])], [100 * paper], "x", color=colour)
        panel.set(title=dataset, xlabel="epochs", xscale="log" if dataset in FOLDS else "linear")
        panel.grid(alpha=0.3)
        legend_below(panel)
    figure.axes[0].set_ylabel("accuracy, per cent")
    keep_picture(figure, PICTURE)


def _label(curve: Curve) -> str:
    label = f"claimed {curve['epsilon']:g}" if curve["epsilon"] else "without noise"
    label += f", key {curve['key']}" if "key" in curve else ""
    return label + (f", batches of {curve['options']['batch']:,}" if "key" in curve else "")


def main() -> None:
    """Make the wanted curves that are not there, or draw all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", nargs="*", help="wdbc and dermatology, if none is given")
    parser.add_argument("--epsilon", type=float, help="only this one; 0 is without noise")
    parser.add_argument("--iterations", type=int, default=ITERATIONS, help="steps in an epoch, on tables")
    parser.add_argument("--batch", type=int, help="records in a step, on MNIST")
    parser.add_argument("--key", type=int, default=0, choices=range(256), metavar="KEY", help="on MNIST")
    parser.add_argument("--after", type=int, help="begin where batches of so many records ended")
    parser.add_argument("--state", type=Path, help="a folder from which a curve of MNIST goes on")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="stop after the epoch in which they end"
    )
    parser.add_argument("--draw", action="store_true", help="only draw")
    wanted = parser.parse_args()
    if wanted.draw:
        draw(read())
        return
    if wanted.state:
        wanted.state.mkdir(parents=True, exist_ok=True)
    way = Way(wanted.key, wanted.after, wanted.state, time.monotonic() + 60 * wanted.minutes)
    for dataset in wanted.dataset or ("wdbc", "dermatology"):
        options = options_of(dataset, wanted.iterations, wanted.batch)
        for epsilon, _ in LOOKS:
            asked = {"dataset": dataset, "epsilon": epsilon, "options": options, "key": wanted.key}
            asked |= {"after": wanted.after}
            offered = epsilon in PAPER[dataset] if epsilon else dataset in WITHOUT_NOISE
            if offered and not finished(asked) and wanted.epsilon in (None, epsilon or 0.0):
                measure(dataset, epsilon, options, way)
    collect()


def finished(asked: Curve) -> bool:
    """Whether that curve is there, all of it."""
    return any(
        _named(one) == _named(asked) and len(one["accuracies"]) >= epochs_of(one["options"]) for one in read()
    )


def _named(curve: Curve) -> tuple[Any, ...]:
    """Data set, epsilon, batch, (of images) key and what was before; numbers, so that curves have an order."""
    key = -1 if curve["dataset"] in FOLDS else curve.get("key", 0)
    after = curve.get("after") or 0
    return curve["dataset"], curve["epsilon"] or 0, curve["options"].get("batch", 0), key, after


def keep(curve: Curve) -> None:
    """In the place of what there was of it."""
    curves = [one for one in read() if _named(one) != _named(curve)]
    RESULTS.write_text(json.dumps([*curves, curve], indent=1, sort_keys=True) + "\n")


def read() -> list[Curve]:
    """What is there."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


if __name__ == "__main__":
    main()
