"""`behaviour`: the human behaviour model of pCDBN (Eqs. 23-26) from released moments of windows; the proof is
docs/proofs/behaviour.md.

Pass 1 releases the mean of the attributes. Pass 2 releases the moments of (patch, x, mean influence), from
which a convolutional Boltzmann machine with dynamic biases is trained without records. Pass 3 releases the
coefficients of a degree-2 loss on its pooled units beside x and the influence. With `rows: window` there is
no machine, and the window itself takes the place of its units (passes 1 and 2). The unit is a record (one
window, with all that is in it) or a user: all windows of a user, and every slot of others that names the
user.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from airlock.errors import ParamsError, ReleaseError
from airlock.models.features.rows import LIMIT
from airlock.models.papers.behaviour import (
    FINE_GRID,
    MachineUnits,
    PatchMap,
    RowMap,
    Scales,
    WindowLayout,
    layout_of,
    mean_rows,
    width,
)
from airlock.params import Params, Section, check
from airlock.privacy import sensitivity
from airlock.privacy.plan import Facts, Plan
from airlock.privacy.sums import LARGEST_TOTAL, cut_slack
from stages.mechanisms import Given, Released, makes, makes_nothing, no_relevance
from stages.release.noisy_sums import NoisySums, Query, guarantee, price
from stages.release.passes import Sums, Wanted
from stages.release.per_user import RowMaker, sum_records, sum_users
from stages.release.units import check_local, moved_records, records_per_unit

NAME, VERSION = "behaviour", 2
ARGUMENT = "docs/proofs/behaviour.md#guarantee"
# Constants below were chosen on simulations with other seeds than that of the data sets
# (bench/papers/behaviour.py --tune).
SHARES = {
    ("machine", "record"): {"mean": 0.01, "moments": 0.15, "gram": 0.30, "cross": 0.54},
    ("window", "record"): {"mean": 0.01, "gram": 0.37, "cross": 0.62},
    ("machine", "user"): {"mean": 0.15, "moments": 0.15, "gram": 0.25, "cross": 0.45},
    ("window", "user"): {"mean": 0.15, "gram": 0.30, "cross": 0.55},
}
CAPS = {"mean": 0.75, "moments": 0.5, "gram": 0.5, "cross": 0.3}
MEAN_GAIN = 0.5
SCALES = {"machine": Scales(1.0, 2.0, 0.25), "window": Scales(1.0, 0.0, 0.25)}
INFLUENCE = {"record": 0.6, "user": 0.3}
COARSE_GRID = 2**8
"""Moments are released in units of so many squares of the grid: on the grid itself a user's noise would pass
what can be drawn.
"""


class Options(Section):
    """release.options of `behaviour`.

    Attributes:
        days: past time points in a record (N); the columns are N values of every attribute, then the present
            ones, then the slots.
        rows: pooled units of the machine, or the window itself.
        groups, height: of the machine's filters, which span all N points.
        social: the largest norm of eta, which bounds what a friend does to the hidden units.
        caps: of a user's total, as parts of what it could be at most; for unit user.
    """

    days: int = Field(4, ge=1, le=10_000)
    rows: Literal["machine", "window"] = "machine"
    groups: int = Field(10, ge=1, le=10_000)
    height: int = Field(12, ge=1)
    social: float = Field(0.1, gt=0, le=1e3)
    caps: dict[str, Annotated[float, Field(gt=0, le=1)]] = Field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """Everything that shapes the released bytes."""

    options: Options
    layout: WindowLayout
    shares: dict[str, float]
    caps: dict[str, float]
    scales: Scales
    classes: int
    unit: str
    per_user: int
    appearances: int
    replaced: int = 1

    @property
    def machine(self) -> bool:
        return self.options.rows == "machine"

    @property
    def passes(self) -> int:
        return 3 if self.machine else 2

    @property
    def size(self) -> int:
        """Length of a row."""
        return width(self.layout, self.options.groups if self.machine else None)

    @property
    def moments(self) -> int:
        """Length of a row of patch moments."""
        return self.layout.patch + self.layout.attributes + 1

    def sizes(self) -> dict[str, int]:
        """How many numbers every sum has."""
        return {
            "mean": self.layout.attributes,
            "moments": self.moments**2,
            "gram": self.size**2,
            "cross": self.size * self.classes,
        }

    def largest(self) -> dict[str, int]:
        """What a user's total can have for a norm before it is cut, in grid units."""
        most = {
            "mean": LIMIT,
            "moments": self.layout.positions * LIMIT**2,
            "gram": LIMIT**2,
            "cross": math.isqrt(self.classes * (self.classes - 1) * LIMIT**2) + 1,
        }
        return {purpose: self.per_user * most[purpose] for purpose in self.shares}

    def bounds(self) -> dict[str, int]:
        """The norm that a user's total is cut to."""
        return {
            purpose: math.ceil(self.caps[purpose] * largest) for purpose, largest in self.largest().items()
        }


def resolve(params: Params, facts: Facts) -> Recipe:
    """Settle everything from parameters and public facts.

    Raises:
        ParamsError: the records are no windows with slots, or a setting is not offered.
    """
    options = check(Options, params.release.options, "params.yaml: release.options")
    if facts.friends is None or facts.per_user is None:
        raise ParamsError(f"params.yaml: '{NAME}' needs a schema with `user.friends` (docs/behaviour.md)")
    check_local(params, NAME)
    if params.relevance.weighs or params.release.engine != "local" or params.release.passes != "auto":
        raise ParamsError(
            f"params.yaml: '{NAME}' takes relevance.mode auto, release.engine local and release.passes auto"
        )
    if unknown := set(options.caps) - set(CAPS):
        raise ParamsError(f"params.yaml: release.options.caps: no '{min(unknown)}'; caps: {', '.join(CAPS)}")
    per_unit = records_per_unit(params, facts)
    recipe = Recipe(
        options,
        layout_of(facts.shape, facts.friends["slots"], options.days, options.height),
        SHARES[options.rows, params.release.unit],
        {**CAPS, **options.caps},
        replace(SCALES[options.rows], influence=INFLUENCE[params.release.unit]),
        len(facts.labels),
        params.release.unit,
        facts.per_user,
        facts.friends["appearances"],
        per_unit if params.release.unit == "record" else 1,
    )
    if (
        facts.n * recipe.layout.positions * LIMIT**2 >= 2**63
        or max(recipe.largest().values()) >= LARGEST_TOTAL
    ):
        raise ParamsError(
            "params.yaml: the sums of so many records would "
            "pass 64-bit integers: lower user.per_user in the schema"
        )
    return recipe


def queries(recipe: Recipe, params: Params) -> list[Query]:
    """The noisy sums of the passes, in order."""
    near, last, sizes = params.release.neighbours, recipe.passes, recipe.sizes()
    record = {
        "mean": sensitivity.mean(LIMIT, neighbours=near),
        "moments": sensitivity.of_user(sensitivity.gram(LIMIT, neighbours=near), recipe.layout.positions),
        "gram": sensitivity.gram(LIMIT, neighbours=near),
        "cross": sensitivity.cross(LIMIT, labels="centred", classes=recipe.classes, neighbours=near),
    }
    if recipe.replaced > 1:
        record = {purpose: sensitivity.of_user(one, recipe.replaced) for purpose, one in record.items()}
    reached = dict(record if recipe.unit == "record" else user_sensitivities(recipe, params))
    if recipe.machine:
        reached["moments"] = (reached["moments"] / COARSE_GRID + recipe.moments) * (1 + 2.0**-40)
    forms = {
        "mean": (1, "gaussian", sizes["mean"]),
        "moments": (2, "symmetric-gaussian", recipe.moments * (recipe.moments + 1) // 2),
        "gram": (last, "symmetric-gaussian", recipe.size * (recipe.size + 1) // 2),
        "cross": (last, "gaussian", sizes["cross"]),
    }
    return [
        Query(purpose, forms[purpose][0], reached[purpose], *forms[purpose][1:], share)  # type: ignore[arg-type]
        for purpose, share in recipe.shares.items()
    ]


def user_sensitivities(recipe: Recipe, params: Params) -> dict[str, float]:
    """Of a user with all windows and all slots (docs/proofs/behaviour.md#guarantee): own total, and what a
    slot does to its owner's total.
    """
    labels = math.sqrt(recipe.classes * (recipe.classes - 1))
    patch, row = influence_change(recipe), row_change(recipe)
    moved = {
        "mean": 0.0,
        "moments": recipe.layout.positions * 2 * LIMIT * patch,
        "gram": 2 * LIMIT * row,
        "cross": row * labels * (1 + 2.0**-40),
    }
    slack = {purpose: cut_slack(bound, recipe.sizes()[purpose]) for purpose, bound in recipe.bounds().items()}
    # Truncated totals are positive semidefinite up to their slack, which matters where one is replaced by
    # another.
    beyond = 0 if params.release.neighbours == "zero-out" else 2
    return {
        purpose: sensitivity.of_bounded_user(
            bound + beyond * math.ceil(slack[purpose]),
            recipe.appearances,
            moved[purpose] + slack[purpose] if moved[purpose] else 0.0,
            neighbours=params.release.neighbours,
            positive=purpose in ("moments", "gram"),
        )
        for purpose, bound in recipe.bounds().items()
    }


def coarsen(total: NDArray[np.int64]) -> NDArray[np.int64]:
    """Two sums of p x p moments that are d apart are less than d / COARSE_GRID + p apart afterwards, for every
    entry is rounded down.
    """
    return total // COARSE_GRID


def influence_change(recipe: Recipe) -> float:
    """How far a slot that is emptied moves the influence in a row: |2 psi - 1| <= 1, one part of the slots;
    and one for truncating.
    """
    return recipe.scales.influence * LIMIT / recipe.layout.slots * (1 + 2.0**-40) + 1


def row_change(recipe: Recipe) -> float:
    """How far a slot that is emptied moves a row: its influence,
    and through eta the pooled units (Lemma 1).
    """
    layout, groups = recipe.layout, recipe.options.groups
    own = 0.0
    if recipe.machine:
        drives = recipe.options.social / layout.slots + math.sqrt(groups) / FINE_GRID
        units = FINE_GRID * (
            0.25 * math.sqrt(layout.blocks) * drives + math.sqrt(groups * layout.blocks) * 2.0**-29
        )
        units += math.sqrt(groups * layout.blocks)
        own = (
            recipe.scales.stretch * recipe.scales.gain * LIMIT / FINE_GRID * units
            + 2 * math.sqrt(recipe.size)
            + 1
        )
    return math.hypot(own, influence_change(recipe)) * (1 + 2.0**-40)


def plan(params: Params, facts: Facts) -> Plan:
    """The price of a release, from parameters and public facts alone."""
    recipe = resolve(params, facts)
    priced = price(queries(recipe, params), params.release)
    proven = guarantee(priced, params.release, argument=ARGUMENT)
    parameters = {
        "epsilon": params.release.epsilon,
        "delta": params.release.delta,
        **recipe.options.model_dump(mode="json"),
    }
    parameters |= {
        "scales": asdict(recipe.scales),
        "shares": recipe.shares,
        "caps": recipe.caps if recipe.unit == "user" else {},
    }
    parameters |= (
        {"bounds": {"records": recipe.per_user, "appearances": recipe.appearances}}
        if recipe.unit == "user"
        else {}
    )
    parameters |= moved_records(params, facts)
    return Plan(NAME, VERSION, parameters, passes=recipe.passes, proven=proven)


relevance, make_relevance = no_relevance, makes_nothing


@makes
def make(given: Given) -> Released:
    """Read the windows, release their sums, and train the machine between two passes."""
    params, facts = given.params, given.facts
    recipe = resolve(params, facts)
    priced = price(queries(recipe, params), params.release)
    noisy_sums = NoisySums(priced, key=given.key, release_id=given.release_id)
    asked = _Passes(recipe, facts, given.reader)
    layout = recipe.layout
    total = asked.sum(lambda x, valid: mean_rows(layout, x, valid, MEAN_GAIN), Wanted({"mean": "sum"}))
    centre = centre_of(noisy_sums.add_noise("mean", total["mean"]), facts.n, noisy_sums.priced["mean"].scale)
    units = None
    if recipe.machine:
        moments = asked.sum(PatchMap(layout, centre, recipe.scales), Wanted({"moments": "gram"}))
        units = units_of_moments(
            recipe, noisy_sums.add_noise("moments", coarsen(moments["moments"])), facts.n
        )
    rows = RowMap(layout, centre, recipe.scales, units)
    sums = asked.sum(rows, Wanted({"gram": "gram", "cross": "cross"}, recipe.classes))
    for purpose in ("gram", "cross"):
        noisy_sums.add_noise(purpose, sums[purpose])
    if asked.passes != recipe.passes:
        raise ReleaseError(
            f"the records were read {asked.passes} times, but {recipe.passes} passes were priced"
        )
    tensors = {**rows.tensors(), "gram": noisy_sums.released["gram"], "cross": noisy_sums.released["cross"]}
    described = {
        "attributes": layout.attributes,
        "days": layout.days,
        "slots": layout.slots,
        "height": layout.height,
    }
    unit = {
        "unit": recipe.unit,
        **({"records": recipe.per_user, "appearances": recipe.appearances} if recipe.unit == "user" else {}),
    }
    return tensors, {
        "layout": described,
        "scales": asdict(recipe.scales),
        "contributions": unit,
        "sums": noisy_sums.details(),
    }


class _Passes:
    """Passes over the records, counted."""

    def __init__(self, recipe: Recipe, facts: Facts, reader: Any) -> None:
        self._recipe, self._facts, self._reader, self.passes = recipe, facts, reader, 0

    def sum(self, rows: RowMaker, wanted: Wanted) -> Sums:
        self.passes += 1
        if self._recipe.unit == "record":
            return sum_records(self._reader, self._facts.shape, rows, wanted)
        return sum_users(self._reader, self._facts.shape, rows, wanted, self._recipe.bounds())


def centre_of(total: NDArray[np.int64], n: int, scale: float) -> NDArray[np.int64]:
    """The mean of the attributes from a noisy sum of rows, in units of 1/FINE_GRID: drawn to zero where it is all
    noise, kept in [0, 1].
    """
    mean = total / n
    signal, noise = float(mean @ mean), len(mean) * (scale / n) ** 2
    shrunk = mean * max(0.0, 1.0 - noise / max(signal, 1e-300))
    found: NDArray[np.int64] = np.clip(
        np.trunc(shrunk * (FINE_GRID / (MEAN_GAIN * LIMIT))), 0, FINE_GRID
    ).astype(np.int64)
    return found


def units_of_moments(recipe: Recipe, moments: NDArray[np.int64], n: int) -> MachineUnits:
    """Train the machine: post-processing of one released matrix."""
    from airlock.models.papers import dynamics

    layout = recipe.layout
    covariance = moments / (float(LIMIT) ** 2 / COARSE_GRID * n * layout.positions)
    machine, dynamic = dynamics.train(covariance, layout, recipe.options.groups)
    return dynamics.integers(
        machine, dynamic, layout, covariance, scales=recipe.scales, social=recipe.options.social
    )
