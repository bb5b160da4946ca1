"""`dp-mac`: Harder, Koehler, Welling and Park, Algorithms 1 and 2; an interactive mechanism whose release is
the model.

Three phases, all of them charged, as one event: one epoch of training with one threshold for all layers, a
histogram a layer of the norms of b_k (the upper edge of the fullest bin becomes the layer's threshold; the
pre-trained weights are dropped), and training. A step takes a Poisson sample, finds auxiliary coordinates
record by record without noise, and releases sums of clipped coefficients,

    sum_n b_kn + N(0, (sigma T_k / lambda_k)^2),   |b_kn| <= T_k,   sum_k lambda_k^2 = 1,

a Gaussian of multiplier sigma: a record moves (lambda_k b_k / T_k)_k by at most 1 (zero-out) or 2
(replace-one; sigma is doubled then).
`allocation: even` is the paper's sqrt K, with K all objectives; `sharp` is lambda_k^2 ~ T_k sqrt(d_k), which
has the least noise in all (docs/proofs/dp-mac.md#joint-step). Counts of a histogram have sensitivity 1
(zero-out) or sqrt 2, and so has the covariance of records of norm 1, from which `projection` takes directions
before the first phase (as the authors' program does for MNIST). docs/errata/dp-mac.md compares claim and
proof.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from airlock.errors import ParamsError
from airlock.params import Params, check
from airlock.privacy.guarantees import Neighbours
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Released, makes_nothing, no_relevance
from stages.release import interactive
from stages.release.papers import guarantees
from stages.release.papers.dp_mac.settings import Options, published_sigma, settle

if TYPE_CHECKING:
    from airlock.models.papers.mac import LayerUnits
    from stages.release.papers.dp_sgd.dp_sgd import Data

NAME, VERSION = "dp-mac", 2
ARGUMENT = "docs/proofs/dp-mac.md#guarantee"
LARGEST_CURVATURE = 2 * 10**7
"""Numbers in all C of a network; MNIST's first layer alone has 184 million."""


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
    def units(self) -> LayerUnits:
        from airlock.models.papers.mac import LayerUnits

        rectified, classify = self.options.units == "relu", self.options.task == "classify"
        return LayerUnits(
            self.options.units or "softplus",
            "logistic" if classify else "linear" if rectified else "softplus",
            rectified,
        )

    @property
    def blocks(self) -> list[int]:
        """How many numbers each b_k (and C_k) has, layer by layer."""
        return [
            size
            for i, o in self.shapes
            for size in ((i * o,) if self.options.order == 1 else (i * o, o * i * i))
        ]

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Of every layer's weights, with a row for biases."""
        return [
            (inputs + (self.options.units == "relu"), outputs) for inputs, outputs in pairwise(self.sizes)
        ]

    @property
    def network(self) -> str:
        kind = {
            ("softplus", "classify"): "softplus",
            ("softplus", "reconstruct"): "autoencoder",
            ("relu", "classify"): "relu",
        }.get((str(self.options.units), str(self.options.task)), "relu-autoencoder")
        return f"{kind}:{'-'.join(str(width) for width in self.sizes[1:-1])}"

    def event(self, sigma: float | None = None) -> dict[str, Any]:
        """All phases, at this sigma or another."""
        train = interactive.sampled(self.rate, self.pretraining + self.steps, sigma or self.sigma)
        once = self.once()
        return {"kind": "composed", "events": [train, *once]} if once else train

    def once(self) -> list[dict[str, Any]]:
        """What is not a step: histograms, projection.

        Replacing a record moves two bins, or two records' parts of a covariance.
        """
        options, far = self.options, math.sqrt(self.reach)
        counts = {"kind": "gaussian", "noise_multiplier": options.histogram_sigma / far}
        found = (
            [{"kind": "self-composed", "count": len(self.blocks), "event": counts}]
            if self.pretraining
            else []
        )
        return [
            *found,
            *(
                [{"kind": "gaussian", "noise_multiplier": options.projection_sigma / far}]
                if options.projection
                else []
            ),
        ]


def resolve(params: Params, facts: Facts) -> Recipe:
    """Settle the preset, the steps and sigma."""
    interactive.check_unit(params, facts, NAME)
    release = params.release
    options = settle(check(Options, release.options, "params.yaml: release.options"), release.epsilon)
    size = math.prod(facts.shape)
    if options.projection and (options.projection > size or options.task == "reconstruct"):
        raise ParamsError(
            f"params.yaml: release.options.projection is for classifiers, and at most {size} here"
        )
    sizes = (
        options.projection or size,
        *(options.hidden or ()),
        size if options.task == "reconstruct" else len(facts.labels),
    )
    batch = min(options.batch or 50, facts.n)
    first, count = (
        max(1, round((epochs or 1) * facts.n / batch)) for epochs in (options.pretraining_epochs, options.epochs)
    )  # fmt: skip
    reach = 2 if release.neighbours == "replace-one" else 1
    recipe = Recipe(
        options,
        sizes,
        batch / facts.n,
        float(batch),
        first if options.thresholds == "learned" else 0,
        count,
        1.0,
        reach,
    )
    if options.order == 2 and sum(recipe.blocks) > LARGEST_CURVATURE:
        raise ParamsError(
            f"params.yaml: release.options.order 2 needs {sum(recipe.blocks):,} numbers here: use narrower "
            "layers or order 1"
        )
    return Recipe(**{**vars(recipe), "sigma": _sigma(recipe, params)})


def _sigma(recipe: Recipe, params: Params) -> float:
    options, release = recipe.options, params.release
    if isinstance(options.sigma, float):
        return options.sigma
    if options.sigma == "paper":
        return published_sigma(options, release.epsilon)
    shape = json.dumps([recipe.event(1.0), recipe.once()])
    return calibrate(shape, release.epsilon, release.delta, release.neighbours)


@lru_cache(maxsize=64)
def calibrate(shape: str, epsilon: float, delta: float, neighbours: Neighbours) -> float:
    """The least sigma at which all phases together are (epsilon, delta)-DP, to within 1 % and from above.

    Args:
        shape: what is released at sigma 1, and the part of it that has no sigma, as JSON.
        epsilon, delta, neighbours: what is asked for.
    """
    whole, once = json.loads(shape)
    train = whole["events"][0] if once else whole

    def fits(sigma: float) -> bool:
        event = interactive.sampled(train["event"]["sampling_probability"], train["count"], sigma)
        return guarantees.price({"kind": "composed", "events": [event, *once]}, delta, neighbours) <= epsilon

    if once and guarantees.price({"kind": "composed", "events": once}, delta, neighbours) >= epsilon:
        raise ParamsError(
            f"params.yaml: histograms and projection alone cost release.epsilon {epsilon:g}: "
            "raise release.options.histogram_sigma or projection_sigma"
        )
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
    sensitivity = f"L2 {recipe.reach} a step, of all layers' coefficients in units of their thresholds"
    proven = guarantees.proven(params.release, recipe.event(), sensitivity=sensitivity, argument=ARGUMENT)
    claimed = None
    if recipe.options.sigma == "paper":
        claimed = guarantees.claimed(
            release,
            neighbours="zero-out",
            delta=release.delta,
            argument="Harder et al., Table 1, or their program",
        )
    parameters = {
        "epsilon": release.epsilon,
        "delta": release.delta,
        **recipe.options.model_dump(mode="json"),
        "network": recipe.network,
    }
    passes = recipe.pretraining + recipe.steps + len(recipe.once())
    return Plan(NAME, VERSION, parameters, passes, proven, claimed, interactive=True)


def train(params: Params, facts: Facts, data: Data, course: interactive.Course) -> Released:
    """Train, and release the last iterate and the thresholds."""
    from stages.release.papers.dp_mac import coordinates

    recipe = resolve(params, facts)
    tensors, found = coordinates.train(recipe, data, course)
    details = {
        "network": recipe.network,
        "n": facts.n,
        "steps": recipe.pretraining + recipe.steps,
        "sigma": recipe.sigma,
    }
    return tensors, {**details, **found}


make = interactive.maker(train, resolve)
relevance, make_relevance = no_relevance, makes_nothing
