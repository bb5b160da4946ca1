"""What each difference between DP-MAC's paper and its authors' program does to the error, one run each.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.mac_ablations --minutes 9      again: goes on
    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.mac_ablations show

USPS, 5,000 digits, the program's settings and noise for a claimed 8 (`authors-usps`) with one thing as the paper has
it: whole squared error on the 1,000 test digits. The last ones have what the program does and the mechanism does not:
centred pixels, batches of a fixed order, and on MNIST (a claimed 0.5, accuracy) its directions of a noisy covariance.
The first one is Table 2's network for MNIST with hardly any noise. What they differ from are the rows of
bench/results/interactive.json, of the same key.
Each run is written to bench/results/papers/mac-ablations.json as soon as it ends, and is not made again.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.papers import interactive
from bench.papers.mac_epochs import WITHOUT_NOISE, begun
from stages.release.papers.dp_mac.coordinates import CoordinateDescent

if TYPE_CHECKING:
    from torch import Tensor

RESULTS = Path(__file__).parents[1] / "results/papers/mac-ablations.json"
CHANGES: dict[str, dict[str, Any]] = {
    "batches of 50, 20 epochs": {"batch": 50, "epochs": 20},
    "softplus, no biases": {"units": "softplus"},
    "thresholds learned, 0.01 at most": {"thresholds": "learned", "threshold": 0.01},
    "rate 0.001, decay 0.9": {"learning_rate": 0.001, "decay": 0.9},
    "z: rate 0.02": {"z_rate": 0.02},
    "sigma 2.2": {"sigma": 2.2},
    "first weights N(0, 1 / inputs)": {"initial": "scaled"},
    "z: plain descent": {"z_optimiser": "sgd"},
    "bounds 12.5 and 20": {"bound_z": 12.5, "bound_w": 20.0},
}
"""The paper's side of each difference (Table 2), by itself."""
USPS, MNIST = ("usps", 8.0, "authors-usps"), ("mnist", 0.5, "authors-mnist")


class Centred(CoordinateDescent):
    """Pixels less their mean over all records, which is exact and not accounted for."""

    def flat(self, rows: Tensor) -> Tensor:
        return super().flat(rows) - self.data.scaled(slice(None)).mean()


class InOrder(CoordinateDescent):
    """Batches are slices of the records as they lie."""

    def advance(self, step: int, state: Any) -> Any:
        import torch

        count, size = len(self.data.labels), round(self.recipe.batch)
        first = step * size % count
        self.keyed = _Given(self.keyed, torch.arange(first, min(first + size, count)))  # type: ignore[assignment]
        return super().advance(step, state)


class _Given:
    """Keyed noise with a sample that is given."""

    def __init__(self, keyed: Any, rows: Tensor) -> None:
        self.inner, self.rows = getattr(keyed, "inner", keyed), rows

    def sample(self, step: int, rate: float, count: int) -> Tensor:
        return self.rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Directions(CoordinateDescent):
    """The program's: as much noise off the diagonal as on it, and the largest singular values of either sign."""

    def learn_projection(self, directions: int) -> Tensor:
        import torch

        total, sigma = self.covariance(), self.recipe.options.projection_sigma
        drawn = sigma * self.keyed.gaussian(0, "projection", total, sigma).triu()
        found: Tensor = torch.linalg.svd(total + drawn + drawn.triu(1).T)[0][:, :directions]
        return found.float().contiguous()


QUIET = {"units": "relu", "initial": "glorot", **WITHOUT_NOISE, "epochs": 3}
CASES: list[tuple[str, tuple[str, float, str], dict[str, Any], Any]] = [
    ("Table 2's network, hardly any noise, 3 epochs, MNIST", ("mnist", 0.5, "paper-mnist"), QUIET, None),
    *((name, USPS, more, None) for name, more in CHANGES.items()),
    ("centred pixels", USPS, {}, Centred),
    ("batches of a fixed order", USPS, {}, InOrder),
    ("the program's directions, MNIST", MNIST, {}, Directions),
]


def run(name: str, place: tuple[str, float, str], more: dict[str, Any], kind: Any) -> dict[str, Any]:
    """All steps; error or accuracy on test records."""
    dataset, epsilon, preset = place
    train, test = (interactive.READERS[dataset](part) for part in (True, False))
    options = {"preset": preset, **more}
    asked = {"dataset": dataset, "mechanism": "dp-mac", "epsilon": epsilon, "options": options}
    if dataset == "usps":
        asked = {"dataset": dataset, "epsilon": epsilon, "mechanism": "dp-mac", "options": options}
    walk = begun(asked, train, 0, kind)
    state = walk.start()
    for step in range(walk.recipe.pretraining + walk.recipe.steps):
        state = walk.advance(step, state)
    network = interactive.load_network(walk.recipe.network, train[0].shape[1:], walk.tensors(state))
    found = centred_error(network, test) if kind is Centred else interactive.judge(network, test, asked)
    return {"case": name, **asked, **found}


def centred_error(network: Any, test: interactive.Images) -> dict[str, Any]:
    """Of pixels less the mean of the test digits, as the program has it."""
    import torch

    pixels = torch.from_numpy(test[0]).float() / 255
    with torch.no_grad():
        missed = network(pixels - pixels.mean()) - (pixels - pixels.mean()).flatten(1)
    return {"accuracy": None, "mean_squared_error": float(missed.square().sum(1).mean())}


def read() -> list[dict[str, Any]]:
    """What is there."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def main() -> None:
    """Measure what is not there yet, or show."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["show"], help="print what was measured")
    parser.add_argument("--minutes", type=float, default=1e9, metavar="M", help="begin no run after so many")
    asked = parser.parse_args()
    end = time.monotonic() + 60 * asked.minutes
    for case in () if asked.what else CASES:
        if time.monotonic() < end and all(row["case"] != case[0] for row in read()):
            rows = [*read(), run(*case)]
            RESULTS.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
            print(case[0], rows[-1]["accuracy"] or rows[-1]["mean_squared_error"], flush=True)
    for row in read() if asked.what else ():
        figure = row["accuracy"] or row["mean_squared_error"]
        print(f"{row['case']:54} {figure:.4g}")


if __name__ == "__main__":
    main()
