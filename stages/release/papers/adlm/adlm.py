"""`adlm`: the Adaptive Laplace Mechanism (Phan, Wu, Hu and Dou 2018, arXiv 1709.05750v2, Algorithm 1), as
published, once for all.

Released: noisy relevances (Eq. 12), every record's inputs (lines 9-14), a bias (line 14) and every record's
loss coefficients (lines 16-19). The paper can be read in several ways, each a different mechanism: they are
options, and the presets are

    paper-literal   Delta_h0 = 2 d |h0| as in Lemma 3, noise for every record, relevance through a network trained on
                    the raw records
    authors-code    Delta_h0 of one pooled map, one noise vector for a whole batch, relevance clamped and to the
                    fourth power; for grey images the program's own network, and its label noise: one matrix
                    beside labels as they are
    sound           the same algorithm with the sensitivities that Theorems A1 and A2 prove, relevance through a
                    public network

docs/errata/adlm.md tells which of the paper's claims hold. Sensitivities (L1): inputs d * range, labels 1
(zero-out) or 2 (replace-one), mean relevance of m records d / m.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import inf, prod
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from airlock.errors import ParamsError
from airlock.params import Params, Section, check
from airlock.privacy import accounting, events
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Given, Released, makes
from stages.release.papers import guarantees
from stages.release.units import check_alone, check_record

if TYPE_CHECKING:
    from airlock.attack.targets import Target

NAME, VERSION = "adlm", 1
AVERAGED = "averaged-relevance"
ARGUMENT = "docs/proofs/adlm.md#record-release"
SHARED_NOISE, RAW_RELEVANCE = "docs/proofs/adlm.md#shared-noise", "docs/proofs/adlm.md#relevance"
Sensitivity = Literal["literal", "fan-in", "one-map", "pooled-map", "tight"]


class Options(Section):
    """release.options of `adlm` and `ilm`. None means the preset's value.

    Attributes:
        sensitivity: the reading of Delta_h0 (docs/proofs/adlm.md#inputs); `tight` is what is needed, and sets
            the other two as well.
        noise: drawn for each record, or once for a batch (public data only: it protects no row).
        network: that relevance goes through: `public` (random, data-free), `released` (trained by DP-SGD,
            charged), `raw` (no proof); None is relevance.network, and if that is auto, the preset's.
        allocation: beta from |R| (Eq. 16), or from the fourth power of the rescaled mean, clamped (the
            authors' code; no proof).
        coefficients: noise on all three orders (line 18), or only on the one that depends on the record.
        label_noise: on the coefficients of records or batches, or (the program for MNIST, no proof) one matrix
            for the whole training, beside labels as they are; it comes with the program's network.
        scaling: x in [0, 1], or divided by sqrt d as Sec. II has it.
        budget: shares of epsilon for relevance, inputs and labels.
        batch: |L|. clip: of the perturbed inputs, by the trainer.
    """

    preset: Literal["paper-literal", "authors-code", "sound"] = "sound"
    sensitivity: Sensitivity | None = None
    noise: Literal["record", "batch"] | None = None
    network: Literal["public", "released", "raw"] | None = None
    allocation: Literal["absolute", "clamped"] | None = None
    coefficients: Literal["all", "labels"] | None = None
    label_noise: Literal["coefficients", "matrix"] | None = None
    scaling: Literal["unit", "norm"] = "unit"
    budget: tuple[float, float, float] = (0.25, 0.25, 0.5)
    batch: int | None = Field(None, ge=1)
    clip: float = Field(10.0, gt=0, le=1e6)
    relevance_records: int | None = Field(None, ge=1)
    stabiliser: float = Field(1.0, ge=1e-9, le=1e6)
    pretraining_epochs: int = Field(12, ge=1, le=10_000)


PRESETS: dict[str, dict[str, str]] = {
    "paper-literal": {
        "sensitivity": "literal",
        "noise": "record",
        "network": "raw",
        "allocation": "absolute",
        "coefficients": "all",
    },
    "authors-code": {
        "sensitivity": "pooled-map",
        "noise": "batch",
        "network": "raw",
        "allocation": "clamped",
        "coefficients": "labels",
    },
    "sound": {
        "sensitivity": "tight",
        "noise": "record",
        "network": "public",
        "allocation": "absolute",
        "coefficients": "labels",
    },
}
BATCHES = {1: 1800, 3: 7200}
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
            labels = "; labels are released as they are" if self.program else ""
            return (
                "one noise vector is shared by a batch, so differences of its records are released exactly"
                + labels
            )
        return self.relevance_flaw

    @property
    def relevance_flaw(self) -> str:
        """Why nothing finite is proven of the relevance alone."""
        if self.adaptive and self.options.network == "raw":
            return "relevance goes through a network that was trained on the raw records without privacy"
        if self.adaptive and self.options.allocation == "clamped":
            return "least and greatest relevance of the raw mean are used without noise"
        return ""


def resolve(params: Params, facts: Facts, *, adaptive: bool = True) -> Recipe:
    """Settle the preset, the sensitivities and the scales of the noise."""
    check_record(params, NAME if adaptive else "ilm")
    check_alone(params, facts, NAME if adaptive else "ilm")
    given = check(Options, params.release.options, "params.yaml: release.options")
    preset = PRESETS[given.preset] | (
        {} if params.relevance.network == "auto" else {"network": params.relevance.network}
    )
    options = given.model_copy(
        update={name: value for name, value in preset.items() if getattr(given, name) is None}
    )
    options = options.model_copy(update={"label_noise": _label_noise(options, facts)})
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
    )


def _label_noise(options: Options, facts: Facts) -> str:
    """Where label noise goes; the program is for grey images, with one noise vector a batch.

    Raises:
        ParamsError: a matrix is asked for where there is no such program.
    """
    grey = facts.kind == "image" and facts.shape[2] == 1
    if options.label_noise == "matrix" and not (grey and options.noise == "batch"):
        raise ParamsError(
            "params.yaml: release.options.label_noise 'matrix' is of the authors' program for grey images "
            "with noise 'batch': use coefficients"
        )
    if options.label_noise is not None:
        return options.label_noise
    program = options.preset == "authors-code" and options.noise == "batch" and grey
    return "matrix" if program else "coefficients"


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
    return float(inputs), classes * (hidden + hidden**2 / 4), 2 * size / max(facts.n, 1)


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


def plan(params: Params, facts: Facts) -> Plan:
    """The price of a release, from parameters and public facts alone."""
    return priced(NAME, resolve(params, facts), params, facts)


def split(recipe: Recipe, params: Params) -> bool:
    """Whether relevance is released by the stage of that name, or here."""
    return recipe.adaptive and params.relevance.mode == "auto"


def priced(name: str, recipe: Recipe, params: Params, facts: Facts) -> Plan:
    """Claimed (by the paper) and proven (Theorems A1-A3) guarantee of one reading."""
    apart = split(recipe, params)
    released = recipe.adaptive and recipe.options.network == "released"
    return Plan(
        name,
        VERSION,
        {
            "epsilon": params.release.epsilon,
            "delta": params.release.delta,
            # Ids from before there was a choice stay what they were.
            **recipe.options.model_dump(mode="json", exclude=set() if recipe.program else {"label_noise"}),
            **({"relevance": "auto"} if apart else {}),
        },
        passes=1 + (relevance_passes(recipe) if recipe.adaptive and not apart else 0),
        proven=_proven(recipe, params, facts),
        claimed=_claimed(recipe, params),
        interactive=released and not apart,
        public_only=bool(recipe.flaw),
    )


def relevance_passes(recipe: Recipe) -> int:
    """Reads for relevance: one for the mean, and what its network needs."""
    reads = {"raw": recipe.options.pretraining_epochs, "released": network_steps(recipe)}
    return 1 + reads.get(str(recipe.options.network), 0)


def relevance(params: Params, facts: Facts) -> Plan | None:
    """The price of the mean relevance; inputs and labels are not in its id."""
    recipe = resolve(params, facts)
    if not split(recipe, params):
        return None
    delta, options = params.release.delta, recipe.options
    shaping = ("network", "allocation", "stabiliser", "pretraining_epochs")
    parameters = {
        "scale": recipe.relevance_scale,
        "records": recipe.counted,
        "delta": delta,
        **{name: getattr(options, name) for name in shaping},
    }
    event = None if recipe.relevance_flaw else relevance_event(recipe, params, facts)
    if options.network == "released":
        parameters["network_event"] = None if event is None else event["events"][1]
    said: dict[str, Any] = {
        "sensitivity": f"L1: mean relevance {recipe.features / recipe.counted:g}",
        "argument": RAW_RELEVANCE,
        "arithmetic": recipe.arithmetic,
    }
    proven = (
        guarantees.unproven(params.release, reason=recipe.relevance_flaw, **said)
        if event is None
        else guarantees.proven(params.release, event, **said)
    )
    return Plan(
        AVERAGED,
        VERSION,
        parameters,
        passes=relevance_passes(recipe),
        proven=proven,
        interactive=options.network == "released",
        public_only=event is None,
    )


def _claimed(recipe: Recipe, params: Params) -> Guarantee | None:
    if recipe.options.sensitivity == "tight":
        return None
    return guarantees.claimed(
        params.release, neighbours="replace-one", argument="Phan et al. 2018, Theorem 1"
    )


def _proven(recipe: Recipe, params: Params, facts: Facts) -> Guarantee:
    if recipe.flaw:
        return guarantees.unproven(
            params.release, argument=recipe.why, reason=recipe.flaw, arithmetic=recipe.arithmetic
        )
    event = event_of(recipe, params, facts)
    sensitivity = f"L1: inputs {recipe.features * recipe.span:g}, labels {recipe.moved_labels}" + (
        f", mean relevance {recipe.features / recipe.counted:g}" if recipe.adaptive else ""
    )
    return guarantees.proven(
        params.release, event, sensitivity=sensitivity, argument=ARGUMENT, arithmetic=recipe.arithmetic
    )


def event_of(recipe: Recipe, params: Params, facts: Facts) -> dict[str, Any]:
    """What the ledger is charged.

    AdLM's shares are known only after a release, and every way to share has the same pure epsilon: it is
    charged as the worst mechanism of that epsilon, randomised response (discrete Laplace of sensitivity 1).
    ILM's even shares are charged one by one.
    """
    if not recipe.adaptive:
        return laplaces(
            (recipe.features, recipe.input_scale / recipe.span), (recipe.moved_labels, recipe.label_scale)
        )
    total = recipe.input_epsilon + recipe.label_epsilon
    if split(recipe, params):
        return pure_event(total)
    pure = pure_event(total + recipe.relevance_epsilon)
    return _with_network(pure, recipe, params, facts)


def relevance_event(recipe: Recipe, params: Params, facts: Facts) -> dict[str, Any]:
    """What the ledger is charged for the mean relevance, and for the network that it goes through."""
    return _with_network(pure_event(recipe.relevance_epsilon), recipe, params, facts)


def pure_event(epsilon: float) -> dict[str, Any]:
    """The worst mechanism of a pure epsilon."""
    return {"kind": "discrete-laplace", "noise_parameter": epsilon, "sensitivity": 1}


def _with_network(pure: dict[str, Any], recipe: Recipe, params: Params, facts: Facts) -> dict[str, Any]:
    if recipe.options.network != "released":
        return pure
    from stages.release.papers.adlm import pretraining

    return {
        "kind": "composed",
        "events": [pure, pretraining.event(recipe.options.pretraining_epochs, params, facts)],
    }


def network_steps(recipe: Recipe) -> int:
    """Reads of a network trained by DP-SGD: its steps."""
    from stages.release.papers.adlm import pretraining

    return recipe.options.pretraining_epochs * pretraining.STEPS_AN_EPOCH


@makes
def make(given: Given) -> Released:
    """Read, perturb, and forget: tensors and details of the release."""
    return perturbed(resolve(given.params, given.facts), given)


def perturbed(recipe: Recipe, given: Given) -> Released:
    """The release of one reading."""
    from stages.release.papers.adlm.perturbation import perturb

    earlier = given.earlier()[0]["relevance"] if split(recipe, given.params) else None
    named: dict[str, Any] = {"key": given.key, "release_id": given.release_id}
    return perturb(recipe, given.params, given.facts, given.reader, relevance=earlier, **named)


@makes
def make_relevance(given: Given) -> Released:
    """Average the relevances of records, and release the noisy sum."""
    from stages.release.papers.adlm.perturbation import average

    recipe = resolve(given.params, given.facts)
    named: dict[str, Any] = {"key": given.key, "release_id": given.release_id}
    total = average(recipe, given.params, given.facts, given.reader, **named)
    return {"relevance": total}, {"n": given.facts.n, "epsilon": recipe.relevance_epsilon}


def targets(
    params: Params, facts: Facts, *, factor: float = 1.0, release: dict[str, Any] | None = None
) -> list[Target]:
    """What an attack can go for."""
    from stages.release.papers.adlm.targets import targets_of

    return targets_of(resolve(params, facts), delta=params.release.delta, factor=factor, release=release)
