"""DP-MAC's Fig. 1 (and 4): error of the autoencoder for USPS after every epoch, training and test digits.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.mac_epochs --keys 10 --minutes 9    again: goes on
    python -m bench.papers.mac_epochs --draw                                        docs/papers/dp-mac-epochs.svg

`table` is Table 2 with the units and first weights of the authors' program, 20 epochs; `program` is that program's
settings, 50 epochs; epsilon 0 stands for hardly any noise (sigma and sigma_hist 0.01). Key 0 draws what
bench.papers.interactive drew. A run is written to bench/results/papers/mac-epochs.json as soon as it ends, and is not
made again; that of key 0 keeps what it makes of ten test digits, for bench.papers.mac_figures.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from airlock.compare.papers import canvas, keep
from airlock.params import Params
from airlock.privacy.plan import Facts
from bench.papers import interactive
from bench.papers.adlm import as_batches

RESULTS = Path(__file__).parents[1] / "results/papers/mac-epochs.json"
PICTURE = Path(__file__).parents[2] / "docs/papers/dp-mac-epochs.svg"
SETTINGS: dict[str, dict[str, Any]] = {
    "table": {"preset": "paper-usps", "units": "relu", "initial": "glorot"},
    "program": {"preset": "authors-usps"},
}
EPOCHS = {"table": 20, "program": 50}
WITHOUT_NOISE = {"sigma": 0.01, "histogram_sigma": 0.01}
LOOKS = {1.0: "#a8433b", 4.0: "#1d5fae", 0.0: "#55616a", 8.0: "#15803d", 2.0: "#a16207"}
"""Claimed epsilon (0: hardly any noise) and colour; those of Fig. 4 are made first."""
PAPER = {**interactive.PAPER["usps", "dp-mac"], 0.0: 11.1}
"""Table 1(b); without privacy from Fig. 4."""
PLACE = {"table": "Table 2's settings", "program": "the program's settings"}
Row = dict[str, Any]


def begun(asked: Row, train: interactive.Images, key: int, kind: Any = None) -> Any:
    """The mechanism's own walk, before its first step; `kind` may be another class of walks."""
    from stages.release.interactive import Keyed
    from stages.release.papers.dp_mac import coordinates, dp_mac
    from stages.release.papers.dp_sgd.dp_sgd import load

    shape, labels = tuple(train[0].shape[1:]), tuple("0123456789")
    facts = Facts(asked["dataset"], True, "image", len(train[1]), 0, shape, labels, schema="", fingerprint="")
    release = {name: asked[name] for name in ("mechanism", "epsilon", "options")}
    recipe = dp_mac.resolve(Params.model_validate({"release": release}), facts)
    keyed = Keyed(bytes([key]) * len(interactive.KEY), json.dumps(asked))
    data = load(iter(as_batches(*train)), facts)
    return (kind or coordinates.CoordinateDescent)(recipe, data, keyed, "cpu")


def run(setting: str, epsilon: float, key: int) -> Row:
    """One training, looked at after every epoch."""
    train, test = (interactive.read_usps(part) for part in (True, False))
    options = {**SETTINGS[setting], **(WITHOUT_NOISE if epsilon == 0 else {})}
    asked = {"dataset": "usps", "epsilon": epsilon or max(LOOKS), "mechanism": "dp-mac", "options": options}
    walk = begun(asked, train, key)
    state, errors, first = walk.start(), Row(train=[], test=[]), walk.recipe.pretraining
    for step in range(first + walk.recipe.steps):
        state = walk.advance(step, state)
        if step >= first and (step + 1 - first) % walk.epoch == 0:
            network = interactive.load_network(walk.recipe.network, train[0].shape[1:], walk.tensors(state))
            for name, part in (("train", train), ("test", test)):
                errors[name].append(interactive.judge(network, part, asked)["mean_squared_error"])
    found = {"setting": setting, "epsilon": epsilon, "key": key, "options": options, **errors}
    return found | ({} if key else {"digits": reconstruct(network, test)})


def reconstruct(network: Any, test: interactive.Images) -> dict[str, list[int]]:
    """What a network makes of the first test digit of each kind, as grey values from 0 to 255."""
    import torch

    chosen = test[0][[int(np.flatnonzero(test[1] == digit)[0]) for digit in range(10)]]
    with torch.no_grad():
        made = network(torch.from_numpy(chosen).float() / 255).numpy()
    grey = np.rint(255 * np.clip(made, 0, 1)).astype(int)
    return {str(digit): one.tolist() for digit, one in enumerate(grey)}


def wanted(setting: str | None, epsilon: float | None, keys: int) -> Iterator[tuple[str, float, int]]:
    """Each setting and epsilon with the first key, then those of Table 2 with the others, epsilon by epsilon."""
    every = [(one, claimed, 0) for one in SETTINGS for claimed in LOOKS]
    every += [("table", claimed, key) for claimed in LOOKS for key in range(1, keys) if claimed]
    for one in every:
        if setting in (None, one[0]) and epsilon in (None, one[1]):
            yield one


def measure(asked: argparse.Namespace) -> None:
    """What is not there yet."""
    end = time.monotonic() + 60 * asked.minutes
    for one in wanted(asked.setting, asked.epsilon, asked.keys):
        if time.monotonic() > end:
            return
        if any((row["setting"], row["epsilon"], row["key"]) == one for row in read()):
            continue
        start = time.process_time()
        row = run(*one)
        rows = [*read(), row]
        RESULTS.write_text("[\n" + ",\n".join(json.dumps(each, sort_keys=True) for each in rows) + "\n]\n")
        print(
            *one,
            f"{row['train'][-1]:.2f} {row['test'][-1]:.2f}",
            f"{time.process_time() - start:.0f} s",
            flush=True,
        )


def read() -> list[Row]:
    """What is there."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def halves(rows: list[Row], part: str) -> tuple[list[float], list[float]]:
    """Mean and deviation over keys of half of the squared error, epoch by epoch."""
    each = [[value / 2 for value in values] for values in zip(*(row[part] for row in rows), strict=True)]
    return [statistics.fmean(one) for one in each], [
        statistics.stdev(one) if len(one) > 1 else 0.0 for one in each
    ]


def draw() -> None:
    """A panel a setting: lines are test errors, dots training errors, bands one deviation, crosses the paper's."""
    shown = [name for name in SETTINGS if any(row["setting"] == name for row in read())]
    figure, first = canvas((4.4 * len(shown) + 0.4, 3.8))
    first.remove()
    for panel, name in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        across = range(1, EPOCHS[name] + 1)
        for epsilon, colour in sorted(LOOKS.items(), key=lambda one: one[0] or max(LOOKS) + 1):
            rows = [row for row in read() if (row["setting"], row["epsilon"]) == (name, epsilon)]
            if rows:
                (up, spread), (known, _) = halves(rows, "test"), halves(rows, "train")
                label = f"claimed {epsilon:g}" if epsilon else "hardly any noise"
                label += f", {len(rows)} keys" if len(rows) > 1 else ""
                panel.plot(across, up, color=colour, label=label, linewidth=1)
                panel.plot(across, known, ":", color=colour, linewidth=1)
                low, high = ([a + sign * b for a, b in zip(up, spread, strict=True)] for sign in (-1, 1))
                panel.fill_between(across, low, high, color=colour, alpha=0.2, linewidth=0)
                panel.plot([EPOCHS[name]], [PAPER[epsilon]], "x", color=colour)
        panel.set(title=PLACE[name], xlabel="epochs", ylim=(0, 32))
        panel.grid(alpha=0.3)
        panel.legend(fontsize=8, frameon=False, loc="upper right")
    figure.axes[0].set_ylabel("half of the squared error")
    keep(figure, PICTURE)


def main() -> None:
    """Measure, or draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--setting", choices=list(SETTINGS), help="only this one")
    parser.add_argument("--epsilon", type=float, help="only this one; 0 is hardly any noise")
    parser.add_argument("--keys", type=int, default=1, metavar="N", help="of Table 2's settings")
    parser.add_argument("--minutes", type=float, default=1e9, metavar="M", help="begin no run after so many")
    parser.add_argument("--draw", action="store_true", help="only draw")
    asked = parser.parse_args()
    draw() if asked.draw else measure(asked)


if __name__ == "__main__":
    main()
