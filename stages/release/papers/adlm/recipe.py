"""AdLM's and ILM's options, settled: which reading of the paper, which sensitivities, how much noise on what.

stages/release/papers/adlm/adlm.py tells the presets apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf, prod
from typing import Any, Literal

from airlock.errors import ParamsError
from airlock.models.papers import crops
from airlock.params import Params
from airlock.privacy import accounting, events
from airlock.privacy.plan import Facts
from stages.release.papers.adlm.options import BATCHES, Options, in_colour, settle
from stages.release.units import check_alone, check_record

SHARED_NOISE, RAW_RELEVANCE = "docs/proofs/adlm.md#shared-noise", "docs/proofs/adlm.md#relevance"
# Share of epsilon for the network, where it is trained by DP-SGD; the rest is divided by `budget`.
NETWORK_SHARE = 0.25
# Beyond this nobody asks for the last bit of noise, and loss distributions are slow.
LARGE_EPSILON = 20.0


@dataclass(frozen=True)
class Recipe:
    """One reading of the paper on one data set, with every figure that shapes the released bytes.

    Attributes:
        features: d. span: r, the length of the interval that a feature lives in.
        epsilons: the paper's e1, e2, e3.
        input_scale: of Laplace noise on x with an even share (beta = 1); label_scale: on a coefficient;
            relevance_scale: on the mean.
        counted: m, the records that relevance is averaged over.
        adaptive: False for ILM, which needs no relevance.
        colour: whether records are colour images.
    """

    options: Options
    features: int
    span: float
    batch: int
    epsilons: tuple[float, float, float]
    input_scale: float
    label_scale: float
    relevance_scale: float
    counted: int
    moved_labels: int
    adaptive: bool
    colour: bool = False

    @property
    def input_epsilon(self) -> float:
        """Theorem A1: sum of r_j / b_j, the same for every way to share with sum of beta = d; tight."""
        return self.features * self.span / self.input_scale

    @property
    def label_epsilon(self) -> float:
        """Theorem A2, scalar reading: a coefficient moves by 1 in one class (zero-out) or two (replace-one);
        tight.
        """
        return self.moved_labels / self.label_scale

    @property
    def relevance_epsilon(self) -> float:
        """Relevances of a record are in [0, 1] each, through a network that does not depend on it: d / m on
        the mean.
        """
        return self.features / self.counted / self.relevance_scale if self.adaptive else 0.0

    @property
    def program(self) -> bool:
        """Whether labels, noise on them and network are those of the authors' program."""
        return self.options.label_noise == "matrix"

    @property
    def signed(self) -> bool:
        """Whether pixels are in [-1, 1] where the noise is said for them."""
        return self.options.pixels == "signed"

    @property
    def colour_program(self) -> bool:
        """Whether it is the program for colour images, which has one noise image for all records."""
        return self.program and self.colour

    @property
    def arithmetic(self) -> Literal["exact", "idealised"]:
        """A network that is trained by DP-SGD and released is floating point; all else is integers."""
        return "idealised" if self.adaptive and self.options.network == "released" else "exact"

    @property
    def why(self) -> str:
        """The argument of the flaw."""
        return SHARED_NOISE if self.options.noise == "batch" else RAW_RELEVANCE

    @property
    def flaw(self) -> str:
        """Why nothing finite is proven; empty where something is."""
        if self.options.noise == "batch":
            shared = "vector is shared by a batch, so differences of its"
            if self.colour_program:
                shared = "image is shared by all records, so differences of distorted"
            labels = "; labels are released as they are" if self.program else ""
            return f"one noise {shared} records are released exactly{labels}"
        return self.relevance_flaw

    @property
    def relevance_flaw(self) -> str:
        """Why nothing finite is proven of the relevance alone."""
        if self.adaptive and self.options.network == "raw":
            return "relevance goes through a network that was trained on the raw records without privacy"
        if self.adaptive and self.options.allocation != "absolute":
            return "least and greatest relevance of the raw mean are used without noise"
        return ""


def resolve(params: Params, facts: Facts, *, adaptive: bool = True) -> Recipe:
    """Settle the preset, the sensitivities and the scales of the noise."""
    check_record(params, "adlm" if adaptive else "ilm")
    check_alone(params, facts, "adlm" if adaptive else "ilm")
    options = settle(params, facts)
    if min(options.budget) <= 0 or abs(sum(options.budget) - 1) > 1e-9:
        raise ParamsError("params.yaml: release.options.budget: three positive shares that sum to 1")
    size, moved = prod(facts.shape), 2 if params.release.neighbours == "replace-one" else 1
    span = size**-0.5 if options.scaling == "norm" else 1.0
    batch = min(
        options.batch or (BATCHES.get(facts.shape[2], 1800) if facts.kind == "image" else 1800),
        max(facts.n, 1),
    )
    counted = min(options.relevance_records or facts.n, facts.n) if adaptive else 0
    shares = (
        options.budget
        if adaptive
        else (0.0, options.budget[1] / sum(options.budget[1:]), options.budget[2] / sum(options.budget[1:]))
    )
    epsilon = params.release.epsilon * (
        1 - NETWORK_SHARE if adaptive and options.network == "released" else 1.0
    )
    if options.sensitivity == "tight" and not adaptive:
        epsilon = _pure_total(epsilon, params.release.delta, size, moved, shares)
    first, second, third = (
        _divided(shares, epsilon, params, options) if adaptive else (share * epsilon for share in shares)
    )
    inputs, labels, relevance = _sensitivities(options, facts, batch, span, moved, counted)
    return Recipe(
        options,
        size,
        span,
        batch,
        (first, second, third),
        input_scale=inputs / (batch * second),
        label_scale=labels / (batch * third),
        relevance_scale=relevance / first if adaptive else inf,
        counted=counted,
        moved_labels=moved,
        adaptive=adaptive,
        colour=in_colour(facts),
    )


def _divided(
    shares: tuple[float, float, float], epsilon: float, params: Params, options: Options
) -> tuple[float, float, float]:
    """Epsilons of relevance, inputs and labels, where the price of relevance may be set.

    Raises:
        ParamsError: it leaves nothing, or is not to be had.
    """
    asked, first = params.relevance, shares[0] * epsilon
    if asked.mode == "auto" and asked.share != "auto":
        first = asked.share * epsilon
    elif asked.mode == "auto" and asked.epsilon != "auto":
        first = asked.epsilon
        if options.network == "released":
            raise ParamsError(
                "params.yaml: relevance.epsilon does not cover a network that is trained with privacy: set "
                "relevance.share"
            )
    if first >= epsilon:
        raise ParamsError(
            f"params.yaml: relevance.epsilon {first} leaves nothing of release.epsilon {epsilon}, which is "
            "the total of both: set it lower"
        )
    rest = (epsilon - first) / (shares[1] + shares[2]) if first != shares[0] * epsilon else epsilon
    return first, shares[1] * rest, shares[2] * rest


def _sensitivities(
    options: Options, facts: Facts, batch: int, span: float, moved: int, counted: int
) -> tuple[float, float, float]:
    """Delta_h0, Delta_F and Delta_R in the chosen reading."""
    size, classes = prod(facts.shape), len(facts.labels)
    if options.sensitivity == "tight":
        return batch * size * span, float(batch * moved), size / max(counted, 1)
    kernel, maps, positions, pooled, hidden = geometry(facts.shape)
    fan_in = kernel * kernel * facts.shape[2] if kernel else size
    inputs = {
        "literal": 2 * size * positions * maps,
        "fan-in": 2 * fan_in * positions * maps,
        "one-map": 2 * fan_in * positions,
        "pooled-map": 2 * fan_in * pooled,
    }[str(options.sensitivity)]
    labels = classes * (hidden + hidden**2 / 4)
    if options.label_noise == "matrix" and in_colour(facts) and options.sensitivity == "pooled-map":
        # Pixels are in [-1, 1] there, so that noise on [0, 1] is half of it; a map is of the square that is seen.
        seen = crops.side(facts.shape)
        return float(fan_in * (-(-seen // 2)) ** 2), labels, 2 * seen**2 / max(facts.n, 1)
    # Pixels in [-1, 1]: noise on [0, 1] is half of it.
    return inputs / (2 if options.pixels == "signed" else 1), labels, 2 * size / max(facts.n, 1)


def geometry(shape: tuple[int, ...]) -> tuple[int, int, int, int, int]:
    """Kernel, maps, positions and pooled positions of the first layer, and |h| (the paper's networks; no
    torch needed).
    """
    if len(shape) == 1:
        return 0, 32, 1, 1, 25
    kernel, maps, pool, hidden = (5, 32, 2, 25) if shape[2] == 1 else (3, 128, 3, 30)
    return kernel, maps, shape[0] * shape[1], (shape[0] // pool) * (shape[1] // pool), hidden


@lru_cache(maxsize=64)
def _pure_total(
    epsilon: float, delta: float, features: int, moved: int, shares: tuple[float, float, float]
) -> float:
    """The sum of pure epsilons at which ILM is (epsilon, delta)-DP: even shares are d equal Laplace
    mechanisms, which compose well.
    """
    if epsilon > LARGE_EPSILON:
        return epsilon

    def fits(total: float) -> bool:
        return (
            accounting.epsilon(events.from_json(_even_event(total, features, moved, shares)), delta)
            <= epsilon
        )

    low, high = epsilon, 2 * epsilon
    while fits(high):
        low, high = high, 2 * high
    while high > 1.001 * low:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _even_event(
    total: float, features: int, moved: int, shares: tuple[float, float, float]
) -> dict[str, Any]:
    return laplaces((features, features / (shares[1] * total)), (moved, moved / (shares[2] * total)))


def laplaces(*counted: tuple[int, float]) -> dict[str, Any]:
    """Independent Laplace mechanisms, each so many times with that multiplier, as an event."""
    parts = [
        {"kind": "self-composed", "count": count, "event": {"kind": "laplace", "noise_multiplier": m}}
        for count, m in counted
    ]
    return {"kind": "composed", "events": parts}
