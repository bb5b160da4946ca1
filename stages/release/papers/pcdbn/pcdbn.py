"""`pcdbn`: the private convolutional deep belief network of Phan, Wu and Dou (2018, arXiv 1706.08839v2), as
published.

What "noise on the polynomial's coefficients" means can be read in several ways, each a different mechanism,
and each an option:

    noise        constants     on the public constants alpha of the polynomial, as in the authors' code; the network
                               is trained here
                 coefficients  on the data's own coefficients of the energy, as the functional mechanism wants
                 it (degree 1 only:
                               degree L has monomials of degree L + 1 in 26 variables, 18,156,204 of them for
                               L = 7)
    sensitivity  batch         from the records of a batch, without the products of Lemma 2 (the code)
                 data          Lemma 2 with the maximum over all records (the paper)
                 domain        Lemma 2 with the maximum over every possible record
                 tight         what the released coefficients need
    budget       each          epsilon in full for every layer and once more for the softmax layer (the code)
                 split         in equal parts
    pretraining  reconstruction  |h' - h| + |v' - v| by Adam (the code)
                 divergence      contrastive divergence (the paper), with noise on constants as without
    architecture strides       layers, batches, loss and optimiser of the authors' program (program.py)
                 pooling       the paper's pooling, normalised drives and sigmoids (training.py)

Presets: `authors-code` (constants, batch, each, strides), `paper-literal` (coefficients, data, split),
`repaired` (coefficients, tight, split). docs/errata/pcdbn.md tells which claims hold: nothing finite is proven
for noise on constants or a sensitivity taken from the records, and such readings are for public data. L1
sensitivities of the rest are in `Recipe`; the accurate sound counterpart is `patch-moments`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from airlock.errors import ParamsError
from airlock.models.papers.chebyshev import Polynomial, polynomial
from airlock.params import Params, Section, check
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Given, Released, makes, makes_nothing, no_relevance
from stages.release.keyed_noise import ROUNDING_FACTOR
from stages.release.noisy_sums import check_scale
from stages.release.papers import guarantees
from stages.release.units import check_alone, check_record

if TYPE_CHECKING:
    from airlock.attack.targets import Target

NAME, VERSION = "pcdbn", 2
STRIDES_VERSION = 3
"""Of the authors' program alone: its sums are taken in another order than before, so that bytes differ."""
ARGUMENT = "docs/proofs/pcdbn.md#guarantee"
SMALLEST_SIDE = 16
GRID = 255
"""Steps of a unit."""


class Options(Section):
    """release.options of `pcdbn`. None means the preset's value.

    Attributes:
        noise, sensitivity, budget, architecture: see above.
        approximation: of the sigmoid: published-7, chebyshev-L, taylor-L, taylor-tanh or piecewise.
        maps: groups of each layer. hidden: width of the fully connected layer.
        pooling: probabilistic (Lee et al. 2009) or the maximum.
        pretraining: see above. pretraining_epochs: of each layer. pretraining_rate: of its steps; null is
            0.01, or 0.05 for divergence.
        epochs: of back-propagation (the program and the paper have 2,400). learning_rate: of it.
        batch: as in the code; the noise that the code adds is divided by it.
        step_records: with strides, how many records of each batch a step reads, for want of machine time; the
            noise stays that of a whole batch. Null is all, as in the program.
        device: with strides, cpu, an accelerator, or auto: the latter if there is one.
    """

    preset: Literal["authors-code", "paper-literal", "repaired"] = "repaired"
    noise: Literal["constants", "coefficients"] | None = None
    sensitivity: Literal["batch", "data", "domain", "tight"] | None = None
    budget: Literal["each", "split"] | None = None
    architecture: Literal["strides", "pooling"] | None = None
    approximation: str | None = None
    maps: tuple[int, int] = (32, 64)
    hidden: int = Field(25, ge=1, le=2**13)
    pooling: Literal["probabilistic", "maximum"] | None = None
    pretraining: Literal["reconstruction", "divergence"] | None = None
    pretraining_epochs: int = Field(10, ge=1, le=100_000)
    epochs: int | None = Field(None, ge=1, le=100_000)
    batch: int = Field(3600, ge=1)
    pretraining_rate: float | None = Field(None, gt=0, le=1e3)
    step_records: int | None = Field(None, ge=2)
    learning_rate: float | None = Field(None, gt=0, le=1e3)
    device: str = "auto"


TEXT: dict[str, Any] = {
    "noise": "coefficients",
    "budget": "split",
    "architecture": "pooling",
    "approximation": "chebyshev-1",
    "pooling": "probabilistic",
    "pretraining": "divergence",
    "epochs": 200,
    "learning_rate": 2e-3,
}
CODE: dict[str, Any] = {
    "noise": "constants",
    "sensitivity": "batch",
    "budget": "each",
    "architecture": "strides",
    "approximation": "published-7",
    "pooling": "maximum",
    "pretraining": "reconstruction",
    "epochs": 2400,
    "learning_rate": 2e-4,
}
ONLY_STRIDES, ONLY_POOLING = {"architecture", "step_records", "device"}, {"pooling", "device"}
"""Options that shape the one and not the other; ids have those that shape the release, and no device."""
PRESETS: dict[str, dict[str, Any]] = {
    "authors-code": CODE,
    "paper-literal": {**TEXT, "sensitivity": "data"},
    "repaired": {**TEXT, "sensitivity": "tight"},
}


@dataclass(frozen=True)
class PerturbedPart:
    """One perturbed object: a layer's energy, or the softmax layer.

    Attributes:
        purpose: its name.
        moves: how many coefficients the largest record moves, and how far each.
        printed: the paper's Delta for it, over the whole domain.
        epsilon: the paper's share for it.
    """

    purpose: str
    moves: tuple[tuple[int, float], ...]
    printed: float
    epsilon: float

    @property
    def l1(self) -> float:
        """The most that one record's coefficients add up to: the L1 sensitivity under zero-out."""
        return sum(count * size for count, size in self.moves)


@dataclass(frozen=True)
class Recipe:
    """One reading on one data set.

    Attributes:
        parts: the layers from the bottom, then the softmax layer.
        reach: 1 under zero-out, 2 under replace-one.
    """

    options: Options
    sigmoid: Polynomial
    parts: tuple[PerturbedPart, ...]
    reach: int

    @property
    def epochs(self) -> int:
        """Of back-propagation."""
        return self.options.epochs or 0

    @property
    def learning_rate(self) -> float:
        """Of back-propagation."""
        return self.options.learning_rate or 0.0

    @property
    def network(self) -> str:
        kind = "strided" if self.options.architecture == "strides" else NAME
        return f"{kind}:" + "-".join(str(size) for size in (*self.options.maps, self.options.hidden))

    def scale(self, part: PerturbedPart) -> float:
        """Of the Laplace noise on a coefficient, where it does not depend on the records."""
        return (
            (part.l1 * self.reach if self.options.sensitivity == "tight" else part.printed)
            / part.epsilon
            * ROUNDING_FACTOR
        )

    @property
    def largest_noise(self) -> float:
        """The largest scale that energy_coefficients.py draws with, in steps of its grid."""
        *layers, softmax = self.parts
        units = [part.moves[0][0] / abs(self.sigmoid.alphas[1]) * self.scale(part) for part in layers]
        return GRID**2 * max(*units, 8 * self.scale(softmax)) * ROUNDING_FACTOR

    @property
    def flaw(self) -> str:
        """Why nothing finite is proven; empty where something is."""
        if self.options.noise == "constants":
            return (
                "noise is added to the polynomial's public constants, while raw records are read without "
                "noise in every step"
            )
        if self.options.sensitivity in ("batch", "data"):
            return "the scale of the noise is taken from the records themselves, without noise"
        return ""

    @property
    def why(self) -> str:
        """The argument of the flaw."""
        constants = self.options.noise == "constants"
        return "docs/proofs/pcdbn.md#" + ("public-constants" if constants else "scale-from-records")

    @property
    def pure(self) -> float:
        """Theorem C: independent Laplace noise on coefficients that one record moves by at most l1 (or twice
        that).
        """
        return sum(part.l1 * self.reach / self.scale(part) for part in self.parts)


def resolve(params: Params, facts: Facts) -> Recipe:
    """Settle the reading, the sensitivities and the shares."""
    given = check(Options, params.release.options, "params.yaml: release.options")
    options = given.model_copy(
        update={name: value for name, value in PRESETS[given.preset].items() if getattr(given, name) is None}
    )
    sigmoid = polynomial(str(options.approximation))
    _refuse(params, facts, options, sigmoid)
    _refuse_strides(given, options)
    parts = _parts(facts, options, sigmoid)
    share = params.release.epsilon / (len(parts) if options.budget == "split" else 1)
    return Recipe(
        options,
        sigmoid,
        tuple(PerturbedPart(purpose, moves, printed, share) for purpose, moves, printed in parts),
        2 if params.release.neighbours == "replace-one" else 1,
    )


Moves = tuple[tuple[int, float], ...]


def _parts(facts: Facts, options: Options, sigmoid: Polynomial) -> list[tuple[str, Moves, float]]:
    """Purpose, moves of a record whose units are all 1, and printed Delta of every part
    (airlock/models/papers/belief.py, without torch).
    """
    parts, channels, (height, width) = list[tuple[str, Moves, float]](), facts.shape[2], facts.shape[:2]
    for depth, groups in enumerate(options.maps):
        positions, patch = (height - 4) * (width - 4), 25 * channels + 1
        # With h = a0 + a1 (w.p + b) / Z, Z = 25 C + 1, the coefficients are a1 / Z times S = sum of p~ p~^T,
        # pairs twice, and sums of v.
        each = abs(sigmoid.alphas[1]) / patch * positions
        moves = ((patch, each), (patch * (patch - 1) // 2, 2 * each), (channels, float(height * width)))
        # Lemma 2 over the domain: all units 1, all arguments 1.
        parts.append(
            (f"layer{depth + 1}", moves, 2 * (sigmoid.total * positions * patch + channels * height * width))
        )
        channels, height, width = groups, -(-(height - 4) // 2), -(-(width - 4) // 2)
    units, classes = options.hidden, len(facts.labels)
    last = ((classes * units, 0.5), (units, 0.125), (units * (units - 1) // 2, 0.25))
    # The paper prints it for one output; its code takes it for each of the classes.
    outputs = classes if options.noise == "constants" else 1
    return [*parts, ("softmax", last, outputs * (units + units**2 / 4))]


def _refuse(params: Params, facts: Facts, options: Options, sigmoid: Polynomial) -> None:
    check_record(params, NAME)
    check_alone(params, facts, NAME)
    if facts.kind != "image" or min(facts.shape[:2]) < SMALLEST_SIDE:
        raise ParamsError(
            f"params.yaml: '{NAME}' is for images of at least {SMALLEST_SIDE} x {SMALLEST_SIDE}: use "
            "coefficients"
        )
    if options.noise == "coefficients" and (sigmoid.degree != 1 or options.sensitivity == "batch"):
        raise ParamsError(
            "params.yaml: release.options.noise 'coefficients' goes with degree 1 (chebyshev-1, piecewise) "
            "and no batches"
        )
    if options.noise == "coefficients" and options.pretraining != "divergence":
        raise ParamsError(
            "params.yaml: release.options.noise 'coefficients' goes with pretraining divergence, which "
            "needs no records"
        )
    if options.noise == "constants" and options.sensitivity != "batch":
        raise ParamsError(
            "params.yaml: release.options.noise 'constants' goes with sensitivity batch, for it is scaled "
            "by each batch"
        )


def _refuse_strides(given: Options, options: Options) -> None:
    """What only one of the two architectures has."""
    strides = options.architecture == "strides"
    if strides and options.noise == "coefficients":
        raise ParamsError(
            "params.yaml: release.options.architecture 'strides' is the authors' program: set preset "
            "authors-code"
        )
    if strides and options.pretraining == "divergence":
        raise ParamsError(
            "params.yaml: release.options.pretraining 'divergence' goes with architecture pooling, for the "
            "authors' program has none"
        )
    if strides and given.pooling is not None:
        raise ParamsError(
            "params.yaml: release.options.pooling goes with architecture pooling: the authors' program "
            "has strides instead"
        )
    if not strides and given.step_records is not None:
        raise ParamsError(
            "params.yaml: release.options.step_records goes with architecture strides (preset authors-code)"
        )
    if not strides and given.device not in ("auto", "cpu"):
        raise ParamsError(
            "params.yaml: release.options.device goes with architecture strides (preset authors-code)"
        )


def plan(params: Params, facts: Facts) -> Plan:
    """Claimed (the paper's epsilon) and proven guarantee of one reading."""
    recipe, release = resolve(params, facts), params.release
    if not recipe.flaw:
        check_scale(recipe.largest_noise)
    claimed = guarantees.claimed(release, argument="Phan et al. 2018, Lemmas 1 and 2")
    parameters = {
        "epsilon": release.epsilon,
        "delta": release.delta,
        **recipe.options.model_dump(
            mode="json",
            exclude=ONLY_POOLING if recipe.options.architecture == "strides" else ONLY_STRIDES,
        ),
    }
    return Plan(
        NAME,
        STRIDES_VERSION if recipe.options.architecture == "strides" else VERSION,
        parameters,
        passes=_passes(recipe),
        proven=_proven(recipe, params),
        claimed=None if recipe.options.preset == "repaired" else claimed,
        interactive=recipe.options.noise == "constants",
        public_only=bool(recipe.flaw),
    )


def _passes(recipe: Recipe) -> int:
    """Epochs over the raw records, or one pass for each part (and one before it that looks for the largest
    record).
    """
    options = recipe.options
    if options.noise == "constants":
        return len(options.maps) * options.pretraining_epochs + recipe.epochs
    return len(options.maps) * (2 if options.sensitivity == "data" else 1) + 1


def _proven(recipe: Recipe, params: Params) -> Guarantee:
    if recipe.flaw:
        return guarantees.unproven(params.release, argument=recipe.why, reason=recipe.flaw)
    # Charged as the worst mechanism of that pure epsilon, randomised response.
    event = {"kind": "discrete-laplace", "noise_parameter": recipe.pure, "sensitivity": 1}
    said = ", ".join(f"{part.purpose} {part.l1 * recipe.reach:.6g}" for part in recipe.parts)
    return guarantees.proven(params.release, event, sensitivity=f"L1: {said}", argument=ARGUMENT)


relevance, make_relevance = no_relevance, makes_nothing


@makes
def make(given: Given) -> Released:
    """Release a trained network (noise on constants), or filters and coefficients to train from."""
    recipe, facts = resolve(given.params, given.facts), given.facts
    if recipe.options.architecture == "strides":
        from stages.release.papers.pcdbn import program

        return program.train(recipe, given)
    if recipe.options.noise == "constants":
        from stages.release.papers.pcdbn.training import train

        return train(recipe, facts, given.reader, key=given.key, release_id=given.release_id, tick=given.tick)
    from stages.release.papers.pcdbn.energy_coefficients import perturb

    return perturb(recipe, facts, given.reader, key=given.key, release_id=given.release_id)


def targets(
    params: Params, facts: Facts, *, factor: float = 1.0, release: dict[str, Any] | None = None
) -> list[Target]:
    """What an attack can go for."""
    from stages.release.papers.pcdbn.targets import targets_of

    return targets_of(resolve(params, facts), facts, factor=factor)
