"""pCDBN and what replaces it: `patch-moments` through real releases, the readings of `pcdbn`, and the
approximations they can use.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.pcdbn sound            MNIST, 60,000 records, three noise
                                                                                   keys
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.pcdbn published        MNIST, 6,000 records, every reading
                                                                                   and approximation
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.pcdbn paper            MNIST, the paper's size, by the
                                                                                   authors' program; goes on where
                                                                                   it stopped
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.pcdbn approximations   errors, and docs/approximations.svg
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.pcdbn choose           how many filters: on USPS, which is
                                                                                   in no result here

`sound` runs the pipeline's stages with a scratch ledger (bench/flagship/pipeline.py). `published` runs the
mechanism's two halves on public data in memory, as bench/papers/adlm.py does. Rows go to
bench/results/pcdbn.json as they come; `airlock compare` makes the table.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
ROWS, CHOICE, ERRORS = (
    RESULTS / "pcdbn.json",
    RESULTS / "pcdbn-choice.json",
    RESULTS / "pcdbn-approximations.json",
)
PICTURE = Path(__file__).parents[2] / "docs/approximations.svg"
# What Phan, Wu and Dou report for MNIST (Sec. 4.2), after 2,400 epochs.
PAPER = {0.5: 0.9308}
LABELS = tuple("0123456789")
IDENTITY = ("dataset", "mechanism", "reading", "epsilon", "neighbours", "records")
GRID = ((6,), (8,), (6, 4), (8, 4))
CHOICE_EPSILON = 4.0
"""For 7,291 records: about the ratio of noise to signal that 60,000 have at 0.5."""
APPROXIMATIONS = (
    "chebyshev-1",
    "chebyshev-3",
    "chebyshev-7",
    "published-7",
    "taylor-5",
    "taylor-tanh",
    "piecewise",
)


def rows() -> list[dict[str, Any]]:
    """What was measured so far."""
    found: list[dict[str, Any]] = json.loads(ROWS.read_text()) if ROWS.exists() else []
    return found


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two rows are of one cell."""
    return all(one.get(name) == other.get(name) for name in IDENTITY)


def keep(row: dict[str, Any]) -> None:
    """Put a row in the place of its predecessor."""
    from bench.flagship.accuracy import locked

    with locked(RESULTS):
        kept = [one for one in rows() if not same(one, row)] + [row]
        kept.sort(key=lambda one: [str(one.get(name)) for name in IDENTITY])
        ROWS.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    print(
        row["dataset"],
        row["mechanism"],
        row["reading"],
        row["epsilon"],
        f"{100 * row['accuracy_mean']:.2f} %",
        flush=True,
    )


def sound(epsilons: list[float], keys: int, readings: list[dict[str, Any]]) -> None:
    """`patch-moments` on MNIST, as it is shipped or with other layers; the row is kept after every key."""
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
        for epsilon in epsilons:
            for options in readings:
                for row in measure(Path(folder), "mnist", epsilon, options, keys):
                    keep(row)


def measure(
    folder: Path, dataset: str, epsilon: float, options: dict[str, Any], keys: int
) -> Iterator[dict[str, Any]]:
    """Real releases, one for each noise key, each trained from and judged on the public test set: the row
    after every key.

    Keys that the results have already are not run again.
    """
    from airlock.records import handles
    from bench.flagship.pipeline import Pipeline
    from stages.release.papers.pcdbn.patch_moments import resolve

    sealed = (folder / "work/data/sealed").exists()
    pipeline = Pipeline(folder, dataset)
    params = pipeline.params(release={"mechanism": "patch-moments", "epsilon": epsilon, "options": options})
    if sealed:
        pipeline.facts = handles.public_facts(pipeline.workspace, params)
    facts = pipeline.facts if sealed else pipeline.seal(params)
    layers = " and ".join(str(count) for count in resolve(params, facts).options.layers)
    about = {
        "dataset": dataset,
        "mechanism": "patch-moments",
        "reading": f"sound; {layers} filters by contrastive divergence from released moments",
        "features": "patches-1",
        "options": options,
        "epsilon": epsilon,
        "claimed": None,
        "delta": params.release.delta,
        "neighbours": params.release.neighbours,
        "records": facts.n,
        "paper_accuracy": PAPER.get(epsilon) if dataset == "mnist" else None,
    }
    row: dict[str, Any] = next((one for one in rows() if same(one, about)), {})
    for key in range(len(row.get("accuracies", [])), keys):
        row = {**about, **summary(row, pipeline.run(params, noise=key))}
        yield row


def summary(before: dict[str, Any], run: Any) -> dict[str, Any]:
    """What a row says after one more run."""
    from bench.flagship.pipeline import peak_memory_mb

    accuracies = [*before.get("accuracies", []), run.accuracy]
    return {
        "proven": max(run.proven, before.get("proven", 0.0)),
        "passes": run.passes,
        "keys": len(accuracies),
        "accuracies": accuracies,
        "accuracy_mean": statistics.fmean(accuracies),
        "accuracy_std": statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0,
        "seconds": min(run.seconds, before.get("seconds", run.seconds)),
        "peak_memory_mb": max(round(peak_memory_mb(), 1), before.get("peak_memory_mb", 0.0)),
    }


def choose(keys: int) -> None:
    """The number of filters, on USPS: the largest mean accuracy; of equals the fewest filters."""
    found = []
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
        for layers in GRID:
            *_, row = measure(Path(folder), "usps", CHOICE_EPSILON, {"layers": list(layers)}, keys)
            named = {
                name: row[name] for name in ("accuracy_mean", "accuracy_std", "keys", "epsilon", "seconds")
            }
            found.append({"layers": list(layers), **named})
            print(found[-1], flush=True)
            CHOICE.write_text(
                json.dumps({"choice": found, "dataset": "usps", "rule": choose.__doc__}, indent=1) + "\n"
            )


def readings(records: int, epochs: int, maps: list[int]) -> Iterator[dict[str, Any]]:
    """Options of `pcdbn`, and their epsilon: the code's reading with every approximation, the text's as
    printed and repaired.
    """
    code = {
        "preset": "authors-code",
        "architecture": "pooling",
        "epochs": epochs,
        "batch": min(3600, records),
        "pretraining_epochs": 3,
        "learning_rate": 0.01,
        "maps": maps,
        "pretraining": "divergence",
    }
    for pretraining in ("divergence", "reconstruction"):
        for epsilon in (0.5, 1e6):
            yield {"epsilon": epsilon, "options": {**code, "pretraining": pretraining}}
    for preset, epsilon in (("repaired", 0.5), ("paper-literal", 0.5), ("repaired", 8.0)):
        yield {"epsilon": epsilon, "options": {"preset": preset, "maps": [8, 8]}}
    for name in APPROXIMATIONS:
        if name != "published-7":
            yield {"epsilon": 0.5, "options": {**code, "approximation": name}}


def published(records: int, epochs: int, maps: list[int], preset: str | None) -> None:
    """Every reading once, on a part of MNIST; what is there already is not run again."""
    from bench.papers.adlm import read_mnist

    images, labels = read_mnist("train")
    train, test = (images[:records], labels[:records]), read_mnist("t10k")
    done = [
        (row.get("options"), row["epsilon"], row["records"]) for row in rows() if row["mechanism"] == "pcdbn"
    ]
    for asked in readings(records, epochs, maps):
        if (
            preset in (None, asked["options"]["preset"])
            and (asked["options"], asked["epsilon"], records) not in done
        ):
            keep(run(asked, train, test))


def run(asked: dict[str, Any], train: tuple[Any, Any], test: tuple[Any, Any]) -> dict[str, Any]:
    """Release, train, judge: one key."""
    from bench.papers.adlm import KEY, _manifest, as_batches
    from stages.mechanisms import mechanism

    params, facts = settle(asked, len(train[1]))
    module, start = mechanism("pcdbn"), time.monotonic()
    plan = module.plan(params, facts)
    tensors, details = module.make(params, facts, as_batches(*train), key=KEY, release_id=json.dumps(asked))
    details["data"] = {"kind": "image", "shape": [28, 28, 1], "labels": list(LABELS), "n": len(train[1])}
    trained = mechanism("pcdbn", "open").train(params.train, _manifest("pcdbn", plan, details), tensors)
    accuracy = float((trained.model.predict(test[0]) == test[1]).mean())
    return {
        **describe(asked, params, facts),
        "accuracy_mean": accuracy,
        "seconds": round(time.monotonic() - start, 1),
    }


def settle(asked: dict[str, Any], records: int) -> tuple[Any, Any]:
    """Parameters and public facts."""
    from airlock.params import Params
    from airlock.privacy.plan import Facts

    release = {"mechanism": "pcdbn", "epsilon": asked["epsilon"], "options": asked["options"]}
    facts = Facts("mnist", True, "image", records, 0, (28, 28, 1), LABELS, schema="", fingerprint="")
    return Params.model_validate({"release": release}), facts


def describe(asked: dict[str, Any], params: Any, facts: Any) -> dict[str, Any]:
    """What a row says before its figures."""
    from stages.release.papers.pcdbn import pcdbn

    plan, recipe = pcdbn.plan(params, facts), pcdbn.resolve(params, facts)
    options, proven = recipe.options, plan.proven
    instead = "" if options.preset != "authors-code" else described(options)
    return {
        "dataset": "mnist",
        "mechanism": "pcdbn",
        "reading": f"{options.preset}{instead}, {options.approximation}, {options.maps[0]} and "
        f"{options.maps[1]} maps" + (", no noise to speak of" if asked["epsilon"] > 1e3 else ""),
        "options": asked["options"],
        "epsilon": asked["epsilon"],
        "claimed": plan.claimed.epsilon if plan.claimed else None,
        "proven_pure": "infinity" if math.isinf(proven.epsilon) else recipe.pure,
        "proven": "infinity" if math.isinf(proven.epsilon) else proven.epsilon,
        "reason": proven.reason,
        "delta": params.release.delta,
        "neighbours": params.release.neighbours,
        "passes": plan.passes,
        "records": facts.n,
        "epochs": options.epochs if options.noise == "constants" else 0,
        "keys": 1,
        "paper_accuracy": PAPER.get(asked["epsilon"]) if options.preset == "authors-code" else None,
    }


def described(options: Any) -> str:
    """What is not as the authors' program has it."""
    parts = []
    if options.architecture == "pooling":
        parts.append("pooling")
    if options.pretraining == "divergence":
        parts.append("contrastive divergence")
    if options.step_records:
        parts.append(f"{options.step_records:,} of each {options.batch:,}")
    return f" but {' and '.join(parts)}" if parts else ""


def approximations() -> None:
    """Errors on [-1, 1] and of the energy of digits under random filters; a table, a file and a picture."""
    import torch

    from airlock.models.papers import boltzmann
    from airlock.models.papers.chebyshev import polynomial
    from bench.papers.adlm import read_mnist

    visible = torch.from_numpy(read_mnist("train")[0][:200].astype("float64") / 255).permute(0, 3, 1, 2)
    drawn = torch.Generator().manual_seed(0)
    machine = boltzmann.fresh(32, 1, (5, 5), drawn, deviation=0.1)
    machine = boltzmann.Machine(machine.filters.double(), machine.hidden.double(), machine.visible.double())
    exact = boltzmann.energy(machine, visible, torch.sigmoid(boltzmann.normalise(machine.drive(visible))))
    rows = []
    for name in APPROXIMATIONS:
        found = polynomial(name)
        gap = (
            boltzmann.approximate_energy(machine, visible, found) - exact
        ).abs().mean() / exact.abs().mean()
        rows.append(
            {
                "approximation": name,
                "degree": found.degree,
                "error": found.error(),
                "energy_error": float(gap),
                "sum_of_constants": found.total,
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    ERRORS.write_text(json.dumps({"approximations": rows}, indent=1) + "\n")
    draw(PICTURE)


def draw(target: Path) -> None:
    """The polynomials beside the sigmoid, and how far they are from it; the same bytes every time."""
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "airlock", "svg.fonttype": "none", "font.size": 11})
    import matplotlib.pyplot as plt
    import numpy as np

    from airlock.models.papers.chebyshev import polynomial, sigmoid

    x = np.linspace(-1, 1, 401)
    figure, (values, errors) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    values.plot(x, sigmoid(x), color="black", label="sigmoid")
    for name in APPROXIMATIONS:
        found = polynomial(name)
        values.plot(x, found(x), "--", label=name)
        errors.semilogy(x, np.abs(found(x) - sigmoid(x)) + 1e-12, label=name)
    values.set(xlabel="normalised drive", ylabel="activation")
    errors.set(xlabel="normalised drive", ylabel="distance to the sigmoid", ylim=(1e-9, 3))
    for axes in (values, errors):
        axes.grid(alpha=0.3)
    values.legend(frameon=False, fontsize=8)
    figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})


def main() -> None:
    """Run the part that is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("sound", "published", "paper", "approximations", "choose"))
    parser.add_argument(
        "--epsilon",
        type=float,
        action="append",
        help="of sound and paper; more than once for several",
    )
    parser.add_argument(
        "--layers",
        type=int,
        nargs="+",
        action="append",
        help="of sound: filters of each layer; more than once for several",
    )
    parser.add_argument("--preset", help="of published: only this one")
    parser.add_argument("--keys", type=int, default=3)
    parser.add_argument("--records", type=int, default=6000, help="of published")
    parser.add_argument(
        "--maps",
        type=int,
        nargs=2,
        default=[32, 64],
        help="of published with noise on constants; the paper has 32 and 64",
    )
    parser.add_argument("--epochs", type=int, help="of published (300) and paper (2,400)")
    parser.add_argument("--step-records", type=int, help="of paper: of each batch; all in the program")
    parser.add_argument("--approximation", help="of paper: chebyshev-L for another degree L (Fig. 6)")
    parser.add_argument("--key", type=int, default=0, help="of paper: of the noise")
    parser.add_argument(
        "--state",
        type=Path,
        default=Path(tempfile.gettempdir()) / "airlock-pcdbn",
        help="of paper: where checkpoints wait",
    )
    asked = parser.parse_args()
    if asked.part == "sound":
        sound(
            asked.epsilon or [0.5], asked.keys, [{"layers": layers} for layers in asked.layers or []] or [{}]
        )
    elif asked.part == "published":
        published(asked.records, asked.epochs or 300, asked.maps, asked.preset)
    elif asked.part == "paper":
        from bench.papers.pcdbn_paper import paper

        given = {name: getattr(asked, name) for name in ("epochs", "step_records", "approximation")}
        options = {name: value for name, value in given.items() if value is not None}
        for epsilon in asked.epsilon or [0.5]:
            paper(epsilon, options, asked.state, asked.key)
    elif asked.part == "choose":
        choose(asked.keys)
    else:
        approximations()


if __name__ == "__main__":
    main()
