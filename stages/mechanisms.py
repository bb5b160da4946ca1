"""The mechanisms: how to write one, and where each of them is.

A mechanism has two halves, each a module. The release half (`Mechanism`) reads sealed records and perturbs, in
two stages: `relevance` releases what noise will follow (where the records lie, which inputs matter), `release`
perturbs coefficients or inputs by it. The open half (`Training`) trains from what was released. To add one,
write the two modules, add a line to `MECHANISMS`, describe it in docs/papers.md or docs/mechanism.md with its
proof in docs/proofs, and give it a class in tests/conformance.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ParamsError, ReleaseError
from airlock.inside.connection import Exchange
from airlock.params import Params, TrainParams
from airlock.privacy import accounting, events
from airlock.privacy.plan import Facts, Plan

if TYPE_CHECKING:
    from airlock.inside.manifest import Manifest
    from airlock.inside.nights import Nights
    from airlock.models.model import Model

Tensors = dict[str, NDArray[Any]]
Released = tuple[Tensors, dict[str, Any]]
"""Tensors for release.safetensors, and details for release.json. Both are noisy, or depend on no record."""
Tick = Callable[[int, int], None]
"""Told how many steps of how many are done."""


def silent(done: int, total: int) -> None:
    """Where nobody watches."""


@dataclass(frozen=True)
class Given:
    """All that a mechanism is given to make a release.

    Attributes:
        params, facts: what was priced; nothing else may shape the release.
        reader: the sealed records, a batch at a time: iterate over it, or `read(index)` for `chunks` of them.
        key, release_id: of the keyed noise (airlock/privacy/noise.py).
        weights: of a relevance release that weighs features (relevance.mode statistics or lrp).
        relevance: what the mechanism's own relevance stage released, for `make`.
        connection: to the workers of a cluster, with `release.engine: dask`.
        tick, checkpoint: for what takes long: whom to tell, and a folder in which functions of noisy numbers
            may be kept.
        nights: with `release.horizon`: what earlier nights have left; None on a first night that nobody follows.
    """

    params: Params
    facts: Facts
    reader: Any
    key: bytes
    release_id: str
    weights: NDArray[np.float64] | None = None
    relevance: Released | None = None
    connection: Exchange | None = None
    tick: Tick = silent
    checkpoint: Path | None = None
    nights: Nights | None = None

    def earlier(self) -> Released:
        """What the relevance stage released.

        Raises:
            ReleaseError: there is nothing.
        """
        if self.relevance is None:
            raise ReleaseError("there is no relevance release to build on: run `dvc repro relevance`")
        return self.relevance


class Make(Protocol):
    """How a release is made, the same for every mechanism.

    Write a function of one `Given` and put `@makes` on it.
    """

    def __call__(
        self,
        params: Params,
        facts: Facts,
        reader: Any,
        *,
        key: bytes,
        release_id: str,
        weights: NDArray[np.float64] | None = None,
        relevance: Released | None = None,
        connection: Exchange | None = None,
        tick: Tick = silent,
        checkpoint: Path | None = None,
        nights: Nights | None = None,
    ) -> Released:
        """Tensors and details of the release."""


def makes(function: Callable[[Given], Released]) -> Make:
    """A function of one `Given` as a mechanism's `make`."""

    @functools.wraps(function)
    def make(params: Params, facts: Facts, reader: Any, **rest: Any) -> Released:
        return function(Given(params, facts, reader, **rest))

    return make


class Mechanism(Protocol):
    """The release half of a mechanism: a module with these names.

    A whole one, which releases the noisy sum of all rows (stages/release/mechanisms/total.py, say)::

        NAME, VERSION = "total", 1                       # another version is another release
        ARGUMENT = "docs/proofs/total.md#guarantee"      # a heading that exists

        def queries(params: Params, facts: Facts) -> list[Query]:
            check_local(params, NAME)                    # refuse here what is not offered, before anything is read
            width = feature_map("tabular-2", facts.kind, facts.shape).width
            reach = sensitivity.mean(LIMIT, neighbours=params.release.neighbours)
            return [Query("total", 1, reach, "gaussian", width, share=1.0).of_unit(records_per_unit(params,
            facts))]

        def plan(params: Params, facts: Facts) -> Plan:
            priced = price(queries(params, facts), params.release)
            shaping = {"epsilon": params.release.epsilon, "delta": params.release.delta}    # hashed into the id
            return Plan(NAME, VERSION, shaping, passes=1, proven=guarantee(priced, params.release,
            argument=ARGUMENT))

        @makes
        def make(given: Given) -> Released:
            priced = price(queries(given.params, given.facts), given.params.release)
            noisy_sums = NoisySums(priced, key=given.key, release_id=given.release_id)
            rows = feature_map("tabular-2", given.facts.kind, given.facts.shape)
            exact = Records(given.reader, rows, given.facts.shape).ask(Wanted({"total": "sum"}))
            return {"total": noisy_sums.add_noise("total", exact["total"])}, {"sums": noisy_sums.details()}

        relevance, make_relevance = no_relevance, makes_nothing      # nothing is asked first

    `plan` runs without any record and is what the ledger charges; `make` must read as often as was priced.
    One that asks something first has `relevance`, its price, and `make_relevance`, which makes it
    (stages/release/noisy_sums.py divides a budget between the two); `make` then finds it in `given.earlier()`
    and asks for it no more (stages/release/mechanisms/coefficients.py). release.epsilon is what both cost
    together. With relevance.mode off `relevance` gives None, and `make` asks for everything itself.
    What a record contributes depends on that record alone, a null record contributes nothing, and a mechanism
    may also say what an attack goes for (`targets`).
    """

    NAME: str
    make: Make
    make_relevance: Make

    def plan(self, params: Params, facts: Facts) -> Plan:
        """The price of a release, from parameters and public facts alone.

        Raises:
            ParamsError: the mechanism does not offer what is asked for.
        """

    def relevance(self, params: Params, facts: Facts) -> Plan | None:
        """The price of what is released first; None where nothing is.

        Its parameters name its own noise and not the whole budget, so that what comes later does not change
        its id.
        """


def no_relevance(params: Params, facts: Facts) -> Plan | None:
    """Of a mechanism that asks nothing first."""
    return None


@makes
def makes_nothing(given: Given) -> Released:
    """Of a mechanism that asks nothing first: never called."""
    raise ReleaseError(f"'{given.params.release.mechanism}' has no relevance release")


@dataclass(frozen=True)
class Whole:
    """Both stages of a mechanism as one: what is priced, made and attacked together."""

    half: Mechanism

    def __getattr__(self, name: str) -> Any:
        """Whatever else the mechanism's module has."""
        return getattr(self.half, name)

    def plans(self, params: Params, facts: Facts) -> list[Plan]:
        """Of each stage that releases something, in their order."""
        first = self.half.relevance(params, facts)
        return [*([first] if first else []), self.half.plan(params, facts)]

    def plan(self, params: Params, facts: Facts) -> Plan:
        """One plan for all: events composed, passes added."""
        plans = self.plans(params, facts)
        return plans[-1] if len(plans) == 1 else _together(plans)

    def make(self, params: Params, facts: Facts, reader: Any, **rest: Any) -> Released:
        """The release, after what it builds on; both with the same key."""
        if self.half.relevance(params, facts):
            first = {**rest, "release_id": f"{rest['release_id']} relevance"}
            rest = {**rest, "relevance": self.half.make_relevance(params, facts, reader, **first)}
        return self.half.make(params, facts, reader, **rest)


def _together(plans: Sequence[Plan]) -> Plan:
    last, proven = plans[-1], [plan.proven for plan in plans]
    whole = replace(
        last, passes=sum(plan.passes for plan in plans), interactive=any(plan.interactive for plan in plans)
    )
    endless = next((one for one in proven if math.isinf(one.epsilon)), None)
    if endless:
        return replace(whole, proven=endless, public_only=True)
    event = {"kind": "composed", "events": [dict(one.event or {}) for one in proven]}
    epsilon = accounting.epsilon(
        events.from_json(event), last.proven.delta, neighbours=last.proven.neighbours
    )
    return replace(whole, proven=replace(last.proven, epsilon=epsilon, event=event))


@dataclass(frozen=True)
class Trained:
    """A model, its learning curve (epoch, loss), and figures for data/metrics/train.json."""

    model: Model
    curve: Sequence[tuple[int, float]]
    metrics: dict[str, Any]


def told_curve(release: Manifest) -> list[tuple[int, float]]:
    """Of a release that is a trained model: losses epoch by epoch, or what its noisy gradients tell of the loss
    (stages/release/told_loss.py); empty for one from before there was either.
    """
    details = release.details
    if "losses" in details:
        return [(epoch, float(loss)) for epoch, loss in enumerate(details["losses"], start=1)]
    points = details.get("curve", {"points": []})["points"]
    return [(int(step), float(change)) for step, change in points]


class Training(Protocol):
    """The open half of a mechanism: a module with this function. It sees what was released, and no record."""

    def train(
        self,
        params: TrainParams,
        release: Manifest,
        tensors: Mapping[str, NDArray[Any]],
        *,
        checkpoint: Path | None = None,
    ) -> Trained:
        """A model from a release; the same arguments give the same bytes."""


class Halves(NamedTuple):
    """The modules of one mechanism, by the room that they are in."""

    release: str
    open: str


def _own(release: str, train: str | None = None) -> Halves:
    return Halves(f"stages.release.mechanisms.{release}", f"stages.open.mechanisms.{train or release}")


def _paper(paper: str, release: str, train: str | None = None) -> Halves:
    return Halves(f"stages.release.papers.{paper}.{release}", f"stages.open.mechanisms.{train or release}")


MECHANISMS = {
    "coefficients": _own("coefficients"),
    "coefficients-iterated": _own("iterated"),
    "inputs": _own("inputs"),
    "bounds": _own("bounds"),
    "adlm": _paper("adlm", "adlm"),
    "ilm": _paper("adlm", "ilm", "adlm"),
    "dp-sgd": _paper("dp_sgd", "dp_sgd"),
    "optimized-noise": _paper("optimized_noise", "optimized_noise"),
    "ellipsoid-noise": _paper("optimized_noise", "ellipsoid_noise", "dp_sgd"),
    "dp-mac": _paper("dp_mac", "dp_mac", "dp_sgd"),
    "behaviour": _paper("pcdbn", "behaviour"),
    "behaviour-published": _paper("pcdbn", "behaviour_published"),
    "pcdbn": _paper("pcdbn", "pcdbn"),
    "patch-moments": _paper("pcdbn", "patch_moments"),
    "neuron-noise": _paper("neuron", "neuron_noise", "optimized_noise"),
    "neuron-allocation": _paper("neuron", "neuron_allocation"),
}


NUMBERS = ("coefficients", "coefficients-iterated")
"""Mechanisms that offer a label which is a number."""


def check_offered(params: Params, facts: Facts) -> None:
    """Refuse what knows classes only, where the label is a number, and quantiles that nobody would use.

    Raises:
        ParamsError: with what to set instead.
    """
    name = params.release.mechanism
    if facts.number and name not in NUMBERS:
        raise ParamsError(
            f"params.yaml: '{name}' predicts classes, and the label '{facts.label}' is a number: set "
            f"release.mechanism to auto, {' or '.join(NUMBERS)}"
        )
    if params.relevance.quantiles and name not in NUMBERS:
        raise ParamsError(
            f"params.yaml: relevance.quantiles is for {' and '.join(NUMBERS)}, and '{name}' would not use it: set "
            "it to false"
        )
    if facts.number and params.relevance.weighs:
        raise ParamsError(
            f"params.yaml: relevance.mode {params.relevance.mode} weighs features by classes, and the label "
            f"'{facts.label}' is a number: set relevance.mode to auto"
        )


@overload
def mechanism(name: str, room: Literal["release"] = "release") -> Mechanism: ...
@overload
def mechanism(name: str, room: Literal["open"]) -> Training: ...
def mechanism(name: str, room: str = "release") -> Any:
    """The half of a mechanism that lives in `room`.

    Raises:
        ParamsError: there is no mechanism of that name.
    """
    if name not in MECHANISMS:
        near = difflib.get_close_matches(name, MECHANISMS, n=1)
        hint = f", did you mean '{near[0]}'?" if near else f"; mechanisms: {', '.join(MECHANISMS)}"
        raise ParamsError(f"params.yaml: unknown release.mechanism '{name}'{hint}")
    halves = MECHANISMS[name]
    return importlib.import_module(halves.open if room == "open" else halves.release)
