"""DP-MAC's Figs. 2 to 4: objectives and their expansions, what the classifier looks at, reconstructions.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.mac_figures        the classifiers: two minutes of a core
    python -m bench.papers.mac_figures --draw                                  docs/papers/dp-mac-figures.svg

Fig. 2 is made up, as in the paper: 500 records of one number, one weight. Its coefficients and their noise are those
of the mechanism, with Table 2's sigma for a claimed 2 and thresholds that clip nothing. Fig. 3 is of MNIST by the
program's settings (`authors-mnist`, claimed 0.5) and by the same with hardly any noise (sigma 0.01, in the covariance
too): for each label the weights, in pixels, of the hidden unit that speaks for it most. Filters go to
bench/results/papers/mac-figures.json; the digits of Fig. 4 are those that bench.papers.mac_epochs has kept.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from airlock.compare.papers import canvas, keep
from airlock.params import Params
from airlock.privacy.plan import Facts
from bench.papers import interactive, mac_epochs
from bench.papers.adlm import as_batches

RESULTS = Path(__file__).parents[1] / "results/papers/mac-figures.json"
PICTURE = Path(__file__).parents[2] / "docs/papers/dp-mac-figures.svg"
LABELS = (0, 3, 5, 6, 8)
CLAIMED = 0.5
WITHOUT_NOISE = {"sigma": 0.01, "projection_sigma": 0.01}
SIDE, LEVELS, GREYS = 28, 9, 15
"""Of a filter; steps of colour of filters and digits: the picture is to be small."""
TRUE = {"hidden": -0.7, "output": 0.7}
"""The weights that made the targets of Fig. 2."""
RECORDS, SIGMA = 500, 1.7
RECONSTRUCTED = ((0.0, "hardly any noise"), (4.0, "claimed 4"), (1.0, "claimed 1"))


def measure() -> None:
    """Train both classifiers; the filters that speak for the labels, and the test digits of Fig. 4."""
    images, labels = interactive.read_usps(False)
    chosen = {
        str(digit): images[int(np.flatnonzero(labels == digit)[0])].ravel().tolist() for digit in range(10)
    }
    document: dict[str, Any] = {"digits": chosen, "gaps": gaps(), "classifiers": {}}
    found = document["classifiers"]
    for name, more in (("not private", WITHOUT_NOISE), ("private", {})):
        network, accuracy = classifier(more)
        filters = {str(label): filter_of(network, label) for label in LABELS}
        found[name] = {
            "accuracy": accuracy,
            "deviation": {label: float(one.std()) for label, one in filters.items()},
            "roughness": {label: roughness(one) for label, one in filters.items()},
            "filters": {label: _whole(one) for label, one in filters.items()},
        }
        print(name, accuracy, found[name]["deviation"], found[name]["roughness"], flush=True)
    RESULTS.write_text(json.dumps(document, sort_keys=True) + "\n")


def classifier(more: dict[str, Any]) -> tuple[Any, float]:
    """A release of `authors-mnist`, and its accuracy."""
    from stages.release.papers.dp_mac import dp_mac

    train, test = (interactive.READERS["mnist"](part) for part in (True, False))
    shape = tuple(train[0].shape[1:])
    facts = Facts(
        "mnist", True, "image", len(train[1]), 0, shape, tuple("0123456789"), schema="", fingerprint=""
    )
    options = {"preset": "authors-mnist", **more}
    asked = {"dataset": "mnist", "mechanism": "dp-mac", "epsilon": CLAIMED, "options": options}
    params = Params.model_validate(
        {"release": {name: asked[name] for name in ("mechanism", "epsilon", "options")}}
    )
    tensors, details = dp_mac.make(
        params, facts, as_batches(*train), key=interactive.KEY, release_id=json.dumps(asked)
    )
    network = interactive.load_network(details["network"], shape, tensors)
    return network, interactive.judge(network, test, asked)["accuracy"]


def filter_of(network: Any, label: int) -> Any:
    """Weights of the hidden unit whose weight to the label is furthest above those to all others: each has its own."""
    first, last = (
        one.detach().numpy() for name, one in network.named_parameters() if name.endswith("weight")
    )
    ahead = last[label] - np.delete(last, label, axis=0).max(0)
    return first[int(ahead.argmax())].reshape(SIDE, SIDE)


def roughness(image: Any) -> float:
    """Mean square of what neighbours differ by, over twice the variance: 1 if they have nothing in common."""
    steps = np.concatenate([np.diff(image, axis=axis).ravel() for axis in (0, 1)])
    return float((steps**2).mean() / (2 * image.var()))


def _whole(image: Any) -> list[int]:
    """From -LEVELS to LEVELS, in proportion."""
    found: list[int] = np.rint(LEVELS * image / np.abs(image).max()).astype(int).ravel().tolist()
    return found


def objective(kind: str, weight: float, inputs: Any, targets: Any) -> float:
    """Eq. 3 with softplus, or App. G's of the output, of one weight."""
    active = weight * inputs
    if kind == "output":
        return float((np.logaddexp(0, active) - targets * active).mean() / 2)
    return float(((targets - np.logaddexp(0, active)) ** 2).mean() / 2)


def made_up(kind: str) -> tuple[Any, Any]:
    """Inputs, and the targets that the true weight gives them."""
    random = np.random.default_rng(0)
    inputs = random.normal(size=RECORDS)
    active = TRUE[kind] * inputs
    if kind == "output":
        return inputs, (random.random(RECORDS) < 1 / (1 + np.exp(-active))).astype(float)
    return inputs, np.logaddexp(0, active)


def expansion(kind: str, weights: Any) -> tuple[Any, Any, Any]:
    """The objective, its expansion at 0 by the mechanism's coefficients, and noisy ones, each with noise of its own."""
    import torch

    from airlock.models.papers import mac
    from stages.release.interactive import Keyed

    inputs, targets = made_up(kind)
    units = mac.CLASSIFIER if kind == "output" else mac.AUTOENCODER
    records, wanted = (torch.from_numpy(one)[:, None] for one in (inputs, targets))
    (layer,) = mac.coefficients([torch.zeros(1, 1, dtype=torch.float64)], records, wanted, [], units, 2)
    thresholds = [float(norm.max()) for norm in layer.norms()]
    totals, base = layer.clipped_sums(thresholds), objective(kind, 0.0, inputs, targets)
    # Two blocks share a step's sensitivity of 1, evenly: each has sqrt 2 times its threshold.
    scales = [2**0.5 * SIGMA * limit for limit in thresholds]
    noisy, keyed = [], Keyed(interactive.KEY, f"{kind} objective")
    for step, weight in enumerate(weights):
        drawn = [
            float(total) + scale * float(keyed.gaussian(step, str(number), total, scale))
            for number, (total, scale) in enumerate(zip(totals, scales, strict=True))
        ]
        noisy.append(base + (drawn[0] * weight + drawn[1] * weight**2) / RECORDS)
    linear, curved = (float(total) / RECORDS for total in totals)
    true = np.array([objective(kind, float(weight), inputs, targets) for weight in weights])
    return true, base + linear * weights + curved * weights**2, np.array(noisy)


def draw() -> None:
    """Fig. 2 on the left, 3 and 4 on the right."""
    found, runs = json.loads(RESULTS.read_text()), mac_epochs.read()
    figure, first = canvas((10, 4.8))
    first.remove()
    left, right = figure.subfigures(1, 2, width_ratios=(2, 3))
    for panel, kind in zip(left.subplots(2, 1), TRUE, strict=True):
        _objective(panel, kind)
    strips = {"test digits": found["digits"]}
    for epsilon, name in RECONSTRUCTED:
        for run in runs:
            if (run["setting"], run["epsilon"], run["key"]) == ("table", epsilon, 0):
                strips[f"{name},\nhalf error {run['test'][-1] / 2:.1f}"] = run["digits"]
    filters = {
        f"{name},\n{100 * one['accuracy']:.1f} %": one["filters"]
        for name, one in found["classifiers"].items()
    }
    rows = right.subplots(len(filters) + len(strips), 1, height_ratios=[2] * len(filters) + [1] * len(strips))
    for panel, (name, images) in zip(rows, (filters | strips).items(), strict=True):
        looks = {"cmap": "PuOr", "vmin": -LEVELS} if name in filters else {"cmap": "gray", "vmin": 0}
        greatest = LEVELS if name in filters else GREYS
        shown = strip(images) if name in filters else np.rint(strip(images) * GREYS / 255)
        panel.imshow(shown, vmax=greatest, interpolation="none", **looks)
        panel.set(xticks=[], yticks=[])
        panel.set_ylabel(name, fontsize=8, rotation=0, ha="right", va="center")
    rows[0].set_title("labels " + ", ".join(map(str, LABELS)), fontsize=8)
    keep(figure, PICTURE)


def strip(images: dict[str, list[int]]) -> Any:
    """Square pictures side by side, with a column that is not drawn between them."""
    parts = []
    for _, image in sorted(images.items()):
        square = np.reshape(np.array(image, float), (round(len(image) ** 0.5), -1))
        parts += [square, np.full((len(square), 1), np.nan)]
    return np.concatenate(parts[:-1], axis=1)


def _objective(panel: Any, kind: str) -> None:
    """Black, red and blue as in the paper."""
    weights = np.linspace(-2, 2, 41)
    true, expanded, noisy = expansion(kind, weights)
    panel.plot(weights, true, color="black", label=f"{kind} objective")
    panel.plot(weights, expanded, "--", color="#a8433b", label="2nd order, at 0")
    panel.plot(weights, noisy, "x", color="#1d5fae", markersize=3, label="with noise")
    panel.axvline(TRUE[kind], color="#55616a", linewidth=0.5)
    panel.set_xlabel("w")
    panel.legend(fontsize=8, frameon=False)
    panel.grid(alpha=0.3)


def gaps() -> dict[str, float]:
    """What the expansion misses at most for weights within 1 of 0, over what the objective varies by there."""
    found, weights = {}, np.linspace(-1, 1, 41)
    for kind in TRUE:
        true, expanded, _ = expansion(kind, weights)
        found[kind] = float(np.abs(true - expanded).max() / np.ptp(true))
    return found


def main() -> None:
    """Measure and draw, or draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draw", action="store_true", help="only draw what was measured")
    if not parser.parse_args().draw:
        measure()
    draw()


if __name__ == "__main__":
    main()
