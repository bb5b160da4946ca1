"""`neuron-noise`: noise injection into neurons by contribution ratio, Algorithms 1 and 2 as published; the
release is the model.

A network is pre-trained on the raw records; layer-wise relevance propagation gives every neuron a
contribution ratio Cr; each neuron I gets the noise delta_I = Lap(Delta_f / e1) Cr_I / Cr_total (Eq. 19) on
its value, and the loss gets Lap(Delta_L / e2) (Eq. 25).

The paper can be read in several ways, each an option; a preset is a whole reading:

    proportion   ratio     Eq. 19: noise in proportion to Cr              inverse    Secs. 4.2 and 4.3: more noise
                                                                                     where Cr is lower
    refresh      once      Algorithm 2, line 3: before training           step       line 13: again for every batch
    sensitivity  pair      Algorithm 1, line 4: from D and a D' whose     lemma      Lemma 3: 2 max |x|_1, without its
                                                                                     sum over n
                           last record is 1 - x
    total        signed    Eq. 18                                         absolute   |Cr|
    neurons      all       Sec. 3.3: the output layer too                 hidden     Sec. 3.6
    maps         unit      a neuron is a place of a map                   channel    a neuron is a map
    update       loss      line 18: the loss itself                       perturbed  the loss of Eq. 25

Nothing finite is proven for any of them (docs/errata/neuron-noise.md): the noise is the same for every
record, so a neuron's noise is another first value of its bias, and noise on the loss has no gradient. No
sensitivity is bounded; public data only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from pydantic import Field

from airlock.params import Params, Section, check
from airlock.privacy.plan import Facts, Plan
from stages.mechanisms import Given, Released, makes
from stages.release.keyed_noise import KeyedNoise
from stages.release.papers import guarantees
from stages.release.units import check_record

if TYPE_CHECKING:
    from airlock.attack.targets import Target

NAME, VERSION, RATIOS = "neuron-noise", 1, "neuron-ratios"
ARGUMENT = "docs/proofs/neuron-noise.md#constant-noise"
FLAWS = {
    "once": "a neuron's noise is constant, so it is another first value of its bias, and noise on the loss "
    "has no gradient: "
    "the raw records train the network as they would without noise",
    "step": "a neuron's noise is shared by a batch, so differences of its records pass exactly, no gradient "
    "is clipped, "
    "and noise on the loss has no gradient",
}


class Options(Section):
    """release.options of `neuron-noise`. None means the preset's or the setting's value.

    Attributes:
        preset: a reading, see above. setting: batch, epochs and rate of one of the paper's three experiments;
            null is a short training.
        split: e1 as a part of epsilon, which the paper leaves open.
        hidden: widths of the hidden layers, which the paper leaves open.
        iterations: steps in an epoch. pretraining_epochs: as many steps each ("a smaller epoch size").
        relevance_records: over how many records ratios are averaged; null is all of them.
    """

    preset: Literal["algorithm", "prose"] = "algorithm"
    setting: Literal["dermatology", "wdbc", "mnist"] | None = None
    proportion: Literal["ratio", "inverse"] | None = None
    refresh: Literal["once", "step"] | None = None
    sensitivity: Literal["pair", "lemma"] | None = None
    total: Literal["signed", "absolute"] | None = None
    neurons: Literal["all", "hidden"] | None = None
    maps: Literal["unit", "channel"] | None = None
    update: Literal["loss", "perturbed"] | None = None
    split: float = Field(0.5, gt=0, lt=1)
    hidden: tuple[Annotated[int, Field(ge=1, le=2**13)], ...] | None = Field(None, min_length=1, max_length=8)
    epochs: int | None = Field(None, ge=1, le=100_000)
    iterations: int | None = Field(None, ge=1, le=1_000_000)
    batch: int | None = Field(None, ge=2)
    learning_rate: float | None = Field(None, gt=0, le=1e3)
    pretraining_epochs: int = Field(1, ge=1)
    relevance_records: int | None = Field(None, ge=1)
    stabiliser: float = Field(1e-3, ge=1e-9, le=1e6)


READINGS = {
    "proportion": ("ratio", "inverse"),
    "refresh": ("once", "step"),
    "sensitivity": ("pair", "lemma"),
    "total": ("signed", "absolute"),
    "neurons": ("all", "hidden"),
    "maps": ("unit", "channel"),
    "update": ("loss", "perturbed"),
}
"""Of each option what `algorithm` takes (the left column above), and what `prose` takes (the right one)."""
SETTINGS: dict[str | None, dict[str, Any]] = {
    None: {"epochs": 5, "iterations": 100, "batch": 64, "learning_rate": 3e-3},
    "dermatology": {"epochs": 100, "iterations": 3000, "batch": 50, "learning_rate": 1e-2},
    "wdbc": {"epochs": 100, "iterations": 3000, "batch": 100, "learning_rate": 1e-2},
    "mnist": {"epochs": 25, "iterations": 100, "batch": 1800, "learning_rate": 1e-3},
}
"""Secs. 4.2 to 4.4, where "10e-3" is taken as written; the rate for WDBC is not in the paper."""
HIDDEN_SIZES = {"tabular": (64, 32, 16), "image": (128, 64)}


@dataclass(frozen=True)
class Recipe:
    """One reading on one data set; every option is settled."""

    options: Options
    network: str
    shape: tuple[int, ...]
    classes: int
    epsilons: tuple[float, float]

    @property
    def steps(self) -> int:
        return (self.options.epochs or 0) * (self.options.iterations or 0)

    @property
    def pretraining_steps(self) -> int:
        return self.options.pretraining_epochs * (self.options.iterations or 0)

    @property
    def flaw(self) -> str:
        return FLAWS[str(self.options.refresh)]

    @property
    def perturbed(self) -> int:
        """How many neurons get noise of their own."""
        sides = (
            [(self.shape[0] >> place) * (self.shape[1] >> place) for place in range(2)]
            if len(self.shape) == 3
            else []
        )
        maps = [
            count * (side if self.options.maps == "unit" else 1)
            for count, side in zip((32, 64), sides, strict=False)
        ]
        return (
            sum(maps)
            + sum(self.options.hidden or ())
            + (self.classes if self.options.neurons == "all" else 0)
        )


def resolve(params: Params, facts: Facts) -> Recipe:
    """Settle the reading."""
    check_record(params, NAME)
    given = check(Options, params.release.options, "params.yaml: release.options")
    reading = {name: values[given.preset == "prose"] for name, values in READINGS.items()}
    settled = {"hidden": HIDDEN_SIZES[facts.kind], **reading, **SETTINGS[given.setting]}
    options = given.model_copy(
        update={name: value for name, value in settled.items() if getattr(given, name) is None}
    )
    name = "neurons:" + "-".join(str(width) for width in options.hidden or ())
    first = options.split * params.release.epsilon
    return Recipe(options, name, facts.shape, len(facts.labels), (first, params.release.epsilon - first))


def plan(params: Params, facts: Facts) -> Plan:
    """Claimed (Lemmas 1 to 5, e1 + e2) and proven guarantee of one reading."""
    recipe = resolve(params, facts)
    claimed = guarantees.claimed(
        params.release, neighbours="replace-one", argument="Adesuyi and Kim, Lemmas 1 to 5"
    )
    proven = guarantees.unproven(params.release, argument=ARGUMENT, reason=recipe.flaw)
    parameters = {
        "epsilon": params.release.epsilon,
        "network": recipe.network,
        **recipe.options.model_dump(mode="json"),
        **({"relevance": "auto"} if split(params) else {}),
    }
    reads = recipe.steps + (0 if split(params) else recipe.pretraining_steps + 1)
    return Plan(NAME, VERSION, parameters, reads, proven, claimed, interactive=True, public_only=True)


def split(params: Params) -> bool:
    """Whether the ratios are released by the stage `relevance`, or here."""
    return params.relevance.mode == "auto"


def relevance(params: Params, facts: Facts) -> Plan | None:
    """The contribution ratios: through a network that saw the raw records, so nothing finite is proven."""
    if not split(params):
        return None
    recipe = resolve(params, facts)
    reason = "contribution ratios go through a network that was trained on the raw records without privacy"
    proven = guarantees.unproven(params.release, argument=ARGUMENT, reason=reason)
    shaping = (
        "iterations",
        "batch",
        "learning_rate",
        "pretraining_epochs",
        "relevance_records",
        "stabiliser",
    )
    parameters = {
        "network": recipe.network,
        **{name: getattr(recipe.options, name) for name in shaping},
    }
    reads = recipe.pretraining_steps + 1
    return Plan(RATIOS, VERSION, parameters, reads, proven, interactive=True, public_only=True)


@makes
def make(given: Given) -> Released:
    """Make the noise from the ratios, and train; the last iterate and the ratios are released.

    With relevance.mode off the ratios are found here.
    """
    from stages.release.papers.dp_sgd.dp_sgd import load
    from stages.release.papers.dp_sgd.gradients import tensors_of
    from stages.release.papers.neuron.training import train_network

    recipe, facts = resolve(given.params, given.facts), given.facts
    found = given.earlier()[0]["contributions"] if split(given.params) else None
    keyed = KeyedNoise(given.key, given.release_id)
    network, ratios, losses = train_network(recipe, load(given.reader, facts), keyed, given.tick, found)
    details = {"network": recipe.network, "n": facts.n, "steps": recipe.steps, "neurons": recipe.perturbed}
    details |= {"losses": losses}
    return {**tensors_of(network), "contributions": ratios}, details


@makes
def make_relevance(given: Given) -> Released:
    """Pre-train on raw records, and find the ratios."""
    from stages.release.papers.dp_sgd.dp_sgd import load
    from stages.release.papers.neuron.training import found_ratios

    recipe = resolve(given.params, given.facts)
    ratios = found_ratios(recipe, load(given.reader, given.facts))
    return {"contributions": ratios}, {"network": recipe.network, "n": given.facts.n}


def targets(
    params: Params, facts: Facts, *, factor: float = 1.0, release: dict[str, Any] | None = None
) -> list[Target]:
    """The perturbed neurons, which Lemma 1 calls e1-private: of one value, and of two records that share the
    noise.

    Both with equal ratios, so that no scale depends on a record. Values may differ by Delta_f in all; the
    worst puts it on one neuron, whose noise has the scale Delta_f / (e1 H) for H neurons.
    """
    from airlock.attack import laws
    from airlock.attack.targets import Target

    recipe = resolve(params, facts)
    first, count = recipe.epsilons[0], recipe.perturbed
    scale = 1 / (first * count)
    pair = "one neuron's value moved by Delta_f, or not; equal ratios"
    single = laws.laplace_box(
        np.ones(1), np.array([scale]), name="perturbed neurons, one record", pair=pair, factor=factor
    )
    known, absent, present = np.zeros(count), np.zeros(count), np.ones(count)
    shared = laws.shared_noise(known, absent, present, scale=scale, clip=math.inf, factor=factor)
    return [Target(single, first, first * count), Target(shared, first, math.inf)]
