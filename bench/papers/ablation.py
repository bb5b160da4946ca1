"""The ablations of the AdLM paper as DVC experiments: AdLM, ILM and no noise, accuracy against epsilon and
against epochs, beside DP-SGD.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.ablation run FOLDER --only mnist --most 2
    python -m bench.papers.ablation collect FOLDER
    python -m bench.papers.ablation tables OTHER

`run` makes a DVC project in FOLDER (outside this one: see bench/papers/ablations/pipeline.yaml) and runs what
is not among its experiments yet, each with `dvc exp run`; `dvc exp show` and `dvc plots show` work there.
`collect` adds what they found to bench/results/ablation.json and draws docs/papers/adlm-*.svg from it;
`airlock compare` makes the table. `tables` adds WDBC, sound readings.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from bench.papers.experiments import Project
from stages import mechanisms

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "ablation.json"
PICTURES = HERE.parents[1] / "docs" / "papers"
# The noise of the code, the network of the paper; bench/papers/adlm_program.py has the program itself.
CODE: dict[str, Any] = {"preset": "authors-code", "label_noise": "coefficients"}
LIGHT_OPTIONS: dict[str, Any] = {"relevance_records": 500, "pretraining_epochs": 1}
SPLIT: dict[str, Any] = {"budget": [0.1, 0.6, 0.3]}  # the authors' code for CIFAR-10: .25, 1.5, .75
CIFAR = {"dataset": "cifar10-jpeg", "records": 8_000, "judged": 2000, "epochs": 3}
TABLE = "wdbc"
LOOKS = {"adlm": "#1d5fae", "ilm": "#c2410c", "dp-sgd": "#15803d"}


def experiments() -> Iterator[dict[str, Any]]:
    """What is changed in bench/papers/ablations/params.yaml for each run; the telling ones first."""
    yield {"mechanism": "none", "epochs": 8}
    for name in ("ilm", "adlm"):
        yield {"mechanism": name, "epsilon": 8.0, "options": _options(name, CODE), "epochs": 5}
    for name in ("none", "ilm", "adlm"):
        yield {
            **CIFAR,
            "mechanism": name,
            "epsilon": 8.0,
            "options": {} if name == "none" else _options(name, {**CODE, **SPLIT}),
        }
    # As many steps as two epochs, each pass with noise of its own.
    yield {"mechanism": "ilm", "epsilon": 8.0, "options": CODE, "copies": 2}
    for epsilon in (0.5, 32.0, 2.0, 128.0):
        for name in ("ilm", "adlm"):
            yield {"mechanism": name, "epsilon": epsilon, "options": _options(name, CODE)}
    yield {
        "mechanism": "dp-sgd",
        "epsilon": 0.5,
        "options": {"epochs": 2, "batch": 512, "learning_rate": 1.0},
    }


def _options(name: str, options: dict[str, Any]) -> dict[str, Any]:
    return {**options, **LIGHT_OPTIONS} if name == "adlm" else options


def settle(change: dict[str, Any]) -> dict[str, Any]:
    """bench/papers/ablations/params.yaml with one experiment's changes."""
    asked: dict[str, Any] = yaml.safe_load((HERE / "ablations/params.yaml").read_text())
    asked["train"]["epochs"] = change.get("epochs", 1)
    return {**asked, **{key: value for key, value in change.items() if key != "epochs"}}


def name_of(asked: dict[str, Any]) -> str:
    """An experiment's name: letters, digits and dashes."""
    words = [
        asked["dataset"],
        str(asked["records"]),
        asked["mechanism"],
        *(str(value) for value in asked["options"].values() if isinstance(value, str)),
    ]
    words += [] if asked["mechanism"] == "none" else [f"{asked['epsilon']:g}"]
    words += [f"copies-{asked['copies']}"] if asked["copies"] > 1 else []
    words += [f"epochs-{asked['train']['epochs']}"] if asked["train"]["epochs"] > 1 else []
    return "-".join(words).replace(".", "-")


def run(folder: Path, only: str, most: int, minutes: float) -> None:
    """Run experiments whose names begin with `only`: at most `most`, and none after so many minutes."""
    project = _project(folder)
    project.prepare()
    done, left, start = project.names(), most, time.monotonic()
    for asked in map(settle, experiments()):
        name = name_of(asked)
        if name in done or not name.startswith(only) or left == 0 or time.monotonic() - start > 60 * minutes:
            continue
        row = project.run(name, asked)
        print(name, row["accuracy"], f"{row['seconds']} s", flush=True)
        left -= 1


def _project(folder: Path) -> Project:
    return Project(folder, HERE / "ablations")


def collect(folder: Path) -> None:
    """The rows of all experiments, in the order of `experiments`, one a name; then the pictures."""
    rows = _kept()
    for name, row in _project(folder).rows():
        if len(row["curve"]) == 1:  # says no more than the accuracy
            del row["curve"]
        rows[name] = {"name": name, **row}
    _write(rows)


def _kept() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(RESULTS.read_text())["runs"]} if RESULTS.exists() else {}


def _write(rows: dict[str, dict[str, Any]]) -> None:
    order = [name_of(settle(change)) for change in experiments()]
    # A run that left the list cannot be made again: its row goes too.
    kept = [row for row in rows.values() if row["name"] in order or row["dataset"] == TABLE]
    kept.sort(key=lambda row: order.index(row["name"]) if row["name"] in order else len(order))
    RESULTS.write_text(json.dumps({"runs": kept}, indent=1, sort_keys=True) + "\n")
    draw(kept)


def tables(folder: Path) -> None:
    """The sound preset on WDBC, through the pipeline's own stages and a scratch ledger: relevance by each
    network that has a proof.
    """
    from bench.flagship.pipeline import Pipeline

    pipeline = Pipeline(folder, TABLE)
    for epsilon in (8.0, 64.0, 1.0):
        for name, network in (("adlm", "released"), ("adlm", "public"), ("ilm", None)):
            options = {
                "preset": "sound",
                **({"network": network, "pretraining_epochs": 1} if network else {}),
            }
            row = _one_table(
                pipeline,
                {"dataset": TABLE, "mechanism": name, "epsilon": epsilon, "options": options, "copies": 1},
            )
            print(row["name"], row["accuracy"], flush=True)
            _write({**_kept(), row["name"]: row})


def _one_table(pipeline: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """One release, trained from and judged on the public holdout."""
    from bench.papers.adlm import row_of

    asked["train"] = {"epochs": 50, "learning_rate": 0.01, "batch": 64}
    params = pipeline.params(
        release={key: asked[key] for key in ("mechanism", "epsilon", "options")}, train=asked["train"]
    )
    facts = pipeline.seal(params)
    found = pipeline.run(params, 0)
    plan = mechanisms.Whole(mechanisms.mechanism(asked["mechanism"])).plan(params, facts)
    name = name_of({**asked, "records": facts.n, "train": {"epochs": 1}})
    row = {"name": name, **row_of(asked, params, plan), "accuracy": found.accuracy, "records": facts.n}
    return {**row, "judged": facts.n_holdout, "seconds": round(found.seconds, 1)}


def draw(rows: list[dict[str, Any]]) -> None:
    """Accuracy against epsilon and against epochs: MNIST, as in the authors' code, beside the paper's
    figures.
    """
    shown = [
        row
        for row in rows
        if row["dataset"] == "mnist" and row["options"].get("preset") in (None, "authors-code")
    ]
    _draw_epsilon(shown, PICTURES / "adlm-epsilon.svg")
    _draw_epochs(
        [row for row in shown if len(row.get("curve", {})) > 1 or row["copies"] > 1],
        PICTURES / "adlm-epochs.svg",
    )


def _draw_epsilon(rows: list[dict[str, Any]], target: Path) -> None:
    from airlock.compare.papers import canvas, keep
    from bench.papers.adlm import PAPER

    figure, axes = canvas()
    for name, colour in LOOKS.items():
        own = [row for row in rows if row["mechanism"] == name and row["copies"] == 1]
        first = sorted(
            (row["epsilon"], row.get("curve", {}).get("epoch_1", row["accuracy"]))
            for row in own
            if name != "dp-sgd"
        )
        if first:
            axes.plot(*_columns(first), "o-", color=colour, label=f"{name}, 1 epoch")
        for row in own:
            if row["epochs"] > 1:
                axes.plot(
                    [row["epsilon"]],
                    [row["accuracy"]],
                    "s",
                    color=colour,
                    label=f"{name}, {row['epochs']} epochs",
                )
        paper = sorted(
            (epsilon, found)
            for (data, mechanism, epsilon), found in PAPER.items()
            if (data, mechanism) == ("mnist", name)
        )
        axes.plot(*_columns(paper), "x", color=colour, markersize=9, label=f"{name}, the paper's")
    for row in rows:
        if row["mechanism"] == "none":
            axes.axhline(
                row["accuracy"], color="#55616a", linestyle="--", label=f"no noise, {row['epochs']} epochs"
            )
    axes.set(
        xscale="log",
        xlabel="epsilon (AdLM, ILM: claimed, authors-code; DP-SGD: proven)",
        ylabel="accuracy",
        ylim=(0, 1),
    )
    axes.set_title("MNIST, 60,000 records, noise drawn once")
    ticks = sorted(
        {row["epsilon"] for row in rows if "epsilon" in row}
        | {epsilon for data, _, epsilon in PAPER if data == "mnist"}
    )
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    keep(figure, target)


def _draw_epochs(rows: list[dict[str, Any]], target: Path) -> None:
    from airlock.compare.papers import canvas, keep

    figure, axes = canvas()
    styles = dict(
        zip(sorted({row.get("epsilon", 0.0) for row in rows}), ("o-", "s:", "^--", "D-.", "v-"), strict=False)
    )
    for row in rows:
        label = (
            "no noise" if row["mechanism"] == "none" else f"{row['mechanism']}, claimed {row['epsilon']:g}"
        )
        colour = LOOKS.get(row["mechanism"], "#55616a")
        if row["copies"] > 1:  # as many steps as so many epochs
            drawn = f"{label}, noise drawn {row['copies']} times"
            axes.plot(
                [row["copies"] * row["epochs"]],
                [row["accuracy"]],
                "D",
                color=colour,
                markerfacecolor="none",
                label=drawn,
            )
            continue
        curve = [(epoch, row["curve"][f"epoch_{epoch}"]) for epoch in range(1, len(row["curve"]) + 1)]
        axes.plot(*_columns(curve), styles[row.get("epsilon", 0.0)], color=colour, label=label)
    axes.set(xlabel="epochs", ylabel="accuracy", ylim=(0, 1), title="MNIST, 60,000 records, authors-code")
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    keep(figure, target)


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [across for across, _ in points], [up for _, up in points]


def main() -> None:
    """Run or collect."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=["run", "collect", "tables"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="experiments whose names begin so")
    parser.add_argument("--most", type=int, default=-1, help="so many of them at most")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin none after so many minutes")
    chosen = parser.parse_args()
    if chosen.what == "run":
        run(chosen.folder, chosen.only, chosen.most, chosen.minutes)
    elif chosen.what == "tables":
        tables(chosen.folder)
    else:
        collect(chosen.folder)


if __name__ == "__main__":
    main()
