"""`dp-mac`: Harder, Koehler, Welling and Park, Algorithms 1 and 2; an interactive mechanism whose release is the model.

Three phases, all of them charged, as one event: one epoch of training with one threshold for all layers, a histogram a layer of the norms
of b_k (the upper edge of the fullest bin becomes the layer's threshold; the pre-trained weights are dropped), and training. A step takes a
Poisson sample, finds auxiliary coordinates record by record without noise, and releases sums of clipped coefficients,

    sum_n b_kn + N(0, (sigma T_k / lambda_k)^2),   |b_kn| <= T_k,   sum_k lambda_k^2 = 1,

a Gaussian of multiplier sigma: a record moves (lambda_k b_k / T_k)_k by at most 1 (zero-out) or 2 (replace-one; sigma is doubled then).
`allocation: even` is the paper's sqrt K, with K all objectives; `sharp` is lambda_k^2 ~ T_k sqrt(d_k), which has the least noise in all
(MECHANISMS.md 2c). Counts of a histogram have sensitivity 1 (zero-out) or sqrt 2. docs/errata/dp-mac.md compares claim and proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from stages.errors import ParamsError
from stages.params import Params, Section, check
from stages.privacy.guarantees import Guarantee, Neighbours
from stages.privacy.plan import Facts, Plan
from stages.release import steps
from stages.release.steps import Tick, silent

NAME, VERSION, INTERACTIVE = "dp-mac", 1, True
ARGUMENT = "MECHANISMS.md 2b and 2c: Poisson-sampled joint Gaussian steps and Gaussian histograms, composed by privacy loss distributions"
LARGEST_CURVATURE = 2 * 10**7
"""Numbers in all C of a network; MNIST's first layer alone has 184 million."""


class Options(Section):
    """release.options of `dp-mac`. None means the preset's value.

    Attributes:
        task: fit labels (logistic outputs) or the records themselves (autoencoder).
        sigma: noise over sensitivity of a step; `paper`: Table 2's for the claimed epsilon; `auto`: what epsilon really allows.
        order: of the Taylor expansion. threshold, threshold_second: T_b^max and T_C^max.
        thresholds: learned by phases 1 and 2, or the largest for every layer, at no cost.
        bound_z, bound_w: T_z and T_w.
        z_optimiser: not in the paper. initial: weights from N(0, 1) as the paper has it, or N(0, 1 / inputs).
    """

    preset: Literal["paper-mnist", "paper-usps"] | None = None
    task: Literal["classify", "reconstruct"] | None = None
    hidden: tuple[int, ...] | None = None
    epochs: float | None = Field(None, gt=0)
    batch: int | None = Field(None, ge=1)
    learning_rate: float | None = Field(None, gt=0)
    decay: float = Field(0.9, gt=0, le=1)
    z_rate: float | None = Field(None, gt=0)
    z_steps: int | None = Field(None, ge=1)
    w_steps: int = Field(1, ge=1)
    threshold: float | None = Field(None, gt=0)
    threshold_second: float | None = Field(None, gt=0)
    bound_z: float | None = Field(None, gt=0)
    bound_w: float | None = Field(None, gt=0)
    sigma: Literal["auto", "paper"] | float | None = None
    histogram_sigma: float = Field(20.0, gt=0)
    bins: int = Field(20, ge=1)
    pretraining_epochs: float = Field(1.0, gt=0)
    thresholds: Literal["learned", "fixed"] = "learned"
    order: Literal[1, 2] = 1
    allocation: Literal["even", "sharp"] | None = None
    initial: Literal["normal", "scaled"] = "scaled"
    z_optimiser: Literal["adam", "sgd"] = "adam"
    device: str = "cpu"


PRESETS: dict[str | None, dict[str, Any]] = {
    None: {
        "task": "classify", "hidden": (100,), "epochs": 10, "batch": 50, "learning_rate": 0.003, "z_rate": 0.01, "z_steps": 20,
        "threshold": 0.1, "threshold_second": 0.1, "bound_z": 30.0, "bound_w": 30.0, "sigma": "auto", "allocation": "sharp",
    },
    "paper-mnist": {
        "task": "classify", "hidden": (300, 100), "epochs": 20, "batch": 50, "learning_rate": 0.003, "z_rate": 0.01, "z_steps": 20,
        "threshold": 0.1, "threshold_second": 0.1, "bound_z": 30.0, "bound_w": 30.0, "sigma": "paper", "allocation": "even",
    },
    "paper-usps": {
        "task": "reconstruct", "hidden": (300, 100, 20, 100, 300), "epochs": 20, "batch": 50, "learning_rate": 0.001, "z_rate": 0.02,
        "z_steps": 30, "threshold": 0.01, "threshold_second": 0.01, "bound_z": 12.5, "bound_w": 20.0, "sigma": "paper",
        "allocation": "even",
    },
}  # fmt: skip
SIGMAS = {"paper-mnist": {0.5: 5.8, 2.0: 1.7}, "paper-usps": {1.0: 12.1, 2.0: 5.2, 4.0: 3.0, 8.0: 2.2}}
"""Table 2, paired so that a larger sigma goes with a smaller epsilon."""


@dataclass(frozen=True)
class Recipe:
    """One setting on one data set.

    Attributes:
        sizes: inputs, hidden layers, outputs.
        pretraining, steps: steps of phases 1 and 3.
        reach: sensitivity of a step's joint vector: 1 or 2.
    """

    options: Options
    sizes: tuple[int, ...]
    rate: float
    batch: float
    pretraining: int
    steps: int
    sigma: float
    reach: int

    @property
    def layers(self) -> int:
        return len(self.sizes) - 1

    @property
    def blocks(self) -> list[int]:
        """How many numbers each b_k (and C_k) has, layer by layer."""
        pairs = zip(self.sizes, self.sizes[1:], strict=False)
        return [size for i, o in pairs for size in ((i * o,) if self.options.order == 1 else (i * o, o * i * i))]

    @property
    def network(self) -> str:
        kind = "softplus" if self.options.task == "classify" else "autoencoder"
        return f"{kind}:{'-'.join(str(width) for width in self.sizes[1:-1])}"

    def event(self) -> dict[str, Any]:
        return event_of(self.rate, self.pretraining, self.steps, self.sigma, len(self.blocks), self.options.histogram_sigma, self.reach)


def event_of(rate: float, pretraining: int, count: int, sigma: float, histograms: int, deviation: float, reach: int) -> dict[str, Any]:
    """All phases."""
    train = steps.sampled(rate, pretraining + count, sigma)
    return {"kind": "composed", "events": [train, histogram_event(histograms, deviation, reach)]} if pretraining else train


def histogram_event(histograms: int, deviation: float, reach: int) -> dict[str, Any]:
    """Phase 2. Under replace-one a record leaves one bin and enters another."""
    counts = {"kind": "gaussian", "noise_multiplier": deviation / math.sqrt(reach)}
    return {"kind": "self-composed", "count": histograms, "event": counts}


def resolve(params: Params, facts: Facts) -> Recipe:
    """Settle the preset, the steps and sigma."""
    steps.check_unit(params, NAME)
    given = check(Options, params.release.options, "params.yaml: release.options")
    options = given.model_copy(update={name: value for name, value in PRESETS[given.preset].items() if getattr(given, name) is None})
    size, release = math.prod(facts.shape), params.release
    sizes = (size, *(options.hidden or ()), size if options.task == "reconstruct" else len(facts.labels))
    batch = min(options.batch or 50, facts.n)
    first, count = (
        max(1, round((epochs or 1) * facts.n / batch)) for epochs in (options.pretraining_epochs, options.epochs)
    )  # fmt: skip
    reach = 2 if release.neighbours == "replace-one" else 1
    recipe = Recipe(options, sizes, batch / facts.n, float(batch), first if options.thresholds == "learned" else 0, count, 1.0, reach)
    if options.order == 2 and sum(recipe.blocks) > LARGEST_CURVATURE:
        raise ParamsError(f"params.yaml: release.options.order 2 needs {sum(recipe.blocks):,} numbers here: use narrower layers or order 1")
    return Recipe(**{**vars(recipe), "sigma": _sigma(recipe, params)})


def _sigma(recipe: Recipe, params: Params) -> float:
    options, release = recipe.options, params.release
    if isinstance(options.sigma, float):
        return options.sigma
    if options.sigma == "paper":
        known = SIGMAS.get(str(options.preset), {})
        if release.epsilon not in known:
            raise ParamsError(
                "params.yaml: release.options.sigma 'paper' is known for "
                + (f"release.epsilon {', '.join(f'{one:g}' for one in known)}" if known else "presets")
                + " only: use sigma auto"
            )
        return known[release.epsilon]
    shape = (recipe.rate, recipe.pretraining, recipe.steps, len(recipe.blocks), options.histogram_sigma, recipe.reach)
    return calibrate(shape, release.epsilon, release.delta, release.neighbours)


@lru_cache(maxsize=64)
def calibrate(shape: tuple[float, int, int, int, float, int], epsilon: float, delta: float, neighbours: Neighbours) -> float:
    """The least sigma at which all phases together are (epsilon, delta)-DP, to within 1 % and from above."""
    rate, pretraining, count, histograms, deviation, reach = shape

    def fits(sigma: float) -> bool:
        return steps.price(event_of(rate, pretraining, count, sigma, histograms, deviation, reach), delta, neighbours) <= epsilon

    if pretraining and steps.price(histogram_event(histograms, deviation, reach), delta, neighbours) >= epsilon:
        raise ParamsError(f"params.yaml: the histograms alone cost release.epsilon {epsilon:g}: raise release.options.histogram_sigma")
    low, high = 0.5, 1.0
    while not fits(high):
        low, high = high, 2 * high
    while low > 1 / 64 and fits(low):
        low, high = low / 2, low
    while high > 1.01 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def plan(params: Params, facts: Facts) -> Plan:
    """Claimed (by the paper, for its own sigma) and proven guarantee."""
    recipe, release = resolve(params, facts), params.release
    event = recipe.event()
    proven = Guarantee(
        "proven",
        "record",
        release.neighbours,
        steps.price(event, release.delta, release.neighbours),
        release.delta,
        event=event,
        sensitivity=f"L2 {recipe.reach} a step, of all layers' coefficients in units of their thresholds",
        argument=ARGUMENT,
        arithmetic="idealised",
    )
    claimed = None
    if recipe.options.sigma == "paper":
        claimed = Guarantee("claimed", "record", "zero-out", release.epsilon, release.delta, argument="Harder et al., Table 1")
    parameters = {"epsilon": release.epsilon, "delta": release.delta, **recipe.options.model_dump(mode="json"), "network": recipe.network}
    passes = recipe.pretraining + bool(recipe.pretraining) + recipe.steps
    return Plan(NAME, VERSION, parameters, passes, proven, claimed, interactive=True)


def make(
    params: Params,
    facts: Facts,
    reader: Any,
    *,
    key: bytes,
    release_id: str,
    weights: Any = None,
    checkpoint: Path | None = None,
    tick: Tick = silent,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train, and release the last iterate and the thresholds."""
    from stages.release import auxiliary_coordinates, dp_sgd

    recipe = resolve(params, facts)
    data = dp_sgd.load(reader, facts)
    found, thresholds = auxiliary_coordinates.train(recipe, data, steps.Keyed(key, release_id), checkpoint=checkpoint, tick=tick)
    tensors = {f"network.layers.{1 + 2 * k}.weight": weight.T.contiguous().cpu().numpy() for k, weight in enumerate(found)}
    details = {"network": recipe.network, "n": facts.n, "steps": recipe.pretraining + recipe.steps, "sigma": recipe.sigma}
    return tensors, {**details, "thresholds": thresholds}
