"""The human behaviour model of Phan, Wu and Dou (arXiv 1706.08839v2, Eqs. 23-26) on records that are windows.

A record holds d attributes over N past time points (the visible units V), the same attributes now (x), and
slots for friends' influence psi. The mean influence enters the biases, Eq. 25:  b_k(t) = b_k + B_k.x + eta_k
I.  Here I is a sum over slots divided by their number, a
constant: then one friend moves I by at most one part of that number, whatever the degrees
(docs/proofs/behaviour.md#slots). Filters span all N points and `height` neighbouring attributes; hidden units
are pooled in pairs. Everything about records is integer arithmetic or one correctly rounded operation, so a
row is a function of its own record, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ParamsError
from airlock.models.bounds import check_data, check_integers
from airlock.models.features.features import FeatureMap
from airlock.models.features.rows import LIMIT, Rows, check
from airlock.models.model import Model, Tensors
from airlock.privacy.sums import clip_to_norm

Integers = NDArray[np.int64]
NAME = "behaviour-1"
FINE_GRID = 2**14
"""Attributes, influences and probabilities of units are whole multiples of 1/FINE_GRID."""
WEIGHT = 2**16
"""Weights of the machine are whole multiples of 1/WEIGHT."""
POOL = 2
REACH = 8
POWER = 2.0**30
CONSTANT = 0.1
"""The constant in every row, as a part of a row's length."""


@dataclass(frozen=True)
class WindowLayout:
    """Where things are in a record: d x N past values attribute by attribute, d present ones, slots."""

    attributes: int
    days: int
    slots: int
    height: int = 12

    def __post_init__(self) -> None:
        if not 0 < self.height <= self.attributes:
            raise ParamsError(
                f"params.yaml: release.options.height is 1 to {self.attributes}, the number of attributes"
            )

    @property
    def positions(self) -> int:
        """How often a filter fits: N_H."""
        return self.attributes - self.height + 1

    @property
    def blocks(self) -> int:
        """Pooled units of a group."""
        return -(-self.positions // POOL)

    @property
    def patch(self) -> int:
        """Visible units below a filter."""
        return self.height * self.days

    def split(self, records: NDArray[np.float64]) -> tuple[Rows, Rows, Rows]:
        """V (n, d, N), x (n, d) and I (n, 1), in units of 1/FINE_GRID; I still times the number of slots."""
        whole = np.trunc(records * FINE_GRID)
        past = self.attributes * self.days
        slots = whole[:, past + self.attributes :]
        # psi in (0, 1] counts as 2 psi - 1, so that a friend who rests is not the same as no friend.
        signed = np.where(slots > 0, 2 * slots - FINE_GRID, 0.0)
        return (
            whole[:, :past].reshape(-1, self.attributes, self.days),
            whole[:, past:][:, : self.attributes],
            signed.sum(1, keepdims=True),
        )

    def patches(self, past: Rows) -> Rows:
        """What each position of a filter sees, (n, positions, height * N)."""
        seen = np.lib.stride_tricks.sliding_window_view(past, self.height, axis=1)
        return np.ascontiguousarray(np.moveaxis(seen, 3, 2)).reshape(len(past), self.positions, self.patch)


def layout_of(shape: tuple[int, ...], slots: int, days: int, height: int) -> WindowLayout:
    """The layout of encoded records of a shape.

    Raises:
        ParamsError: the shape is not one of such windows.
    """
    attributes, rest = divmod(shape[0] - slots, days + 1)
    if len(shape) != 1 or rest or attributes < 1:
        raise ParamsError(
            f"params.yaml: release.options.days {days}: {shape[0] - slots} columns are not {days} + 1 times "
            "the attributes"
        )
    return WindowLayout(attributes, days, slots, height)


@dataclass(frozen=True)
class MachineUnits:
    """A trained machine in integers: filters (K, height * N), b (K), B (K, d), eta (K) a slot, and what a
    pooled unit is on average.
    """

    filters: Integers
    hidden: Integers
    own: Integers
    social: Integers
    average: Integers

    def probabilities(self, layout: WindowLayout, past: Rows, present: Rows, influence: Rows) -> Rows:
        """P(pooled unit is on), (n, K, blocks), in units of 1/FINE_GRID: Eqs.

        23 and 25 with probabilistic max pooling.
        """
        bias = (
            present @ self.own.T.astype(np.float64)
            + influence * self.social.astype(np.float64)
            + self.hidden * float(FINE_GRID)
        )
        drive = layout.patches(past) @ self.filters.T.astype(np.float64) + bias[:, None]
        places = np.clip(np.floor(drive / WEIGHT) + REACH * FINE_GRID, 0, 2 * REACH * FINE_GRID - 1).astype(
            np.int64
        )
        powers = _powers()[places]
        powers = np.concatenate(
            [powers, np.zeros((len(powers), -layout.positions % POOL, powers.shape[2]))], axis=1
        )
        total = powers.reshape(len(powers), layout.blocks, POOL, -1).sum(axis=2)
        pooled: Rows = np.trunc(total / (total + POWER) * FINE_GRID).transpose(0, 2, 1)
        return pooled


@lru_cache
def _powers() -> Rows:
    """e^z for z from -REACH to REACH in steps of 1/FINE_GRID, times POWER, as integers."""
    powers: Rows = np.rint(POWER * np.exp(np.arange(-REACH * FINE_GRID, REACH * FINE_GRID) / FINE_GRID))
    return powers


@dataclass(frozen=True)
class Scales:
    """How long the parts of a row are, as parts of its largest length.

    Attributes:
        gain: of an attribute that is 1 away from its mean; the own part of a row is cut where it would be too
            long.
        stretch: of a pooled unit, in units of `gain`.
        influence: the length that is kept for the mean influence.
    """

    gain: float
    stretch: float
    influence: float

    @property
    def own(self) -> int:
        """The longest that a user's own part of a row may be."""
        return int(LIMIT * (1 - self.influence**2 - CONSTANT**2) ** 0.5)


@dataclass(frozen=True)
class RowMap:
    """From encoded records to integer rows of norm at most LIMIT: a user's own part, mean influence, a
    constant.

    Attributes:
        layout: of a record.
        centre: released mean of the attributes, in units of 1/FINE_GRID.
        scales: of the parts of a row.
        units: the machine; without one the own part is the window itself.
    """

    layout: WindowLayout
    centre: Integers
    scales: Scales
    units: MachineUnits | None = None

    @property
    def own(self) -> int:
        """Length of the own part."""
        return width(self.layout, len(self.units.filters) if self.units else None) - 2

    def __call__(self, records: NDArray[np.float64], valid: NDArray[np.uint8]) -> Rows:
        """Rows; those of null records are zero."""
        past, present, influence = self.layout.split(records)
        past, present = past - self.centre[:, None], present - self.centre
        if self.units:
            hidden = (
                self.units.probabilities(self.layout, past, present, influence) - self.units.average[:, None]
            )
            own = np.concatenate([hidden.reshape(len(hidden), -1) * self.scales.stretch, present], axis=1)
        else:
            own = np.concatenate([past.reshape(len(past), -1), present], axis=1)
        return assemble(self.layout, own, influence, self.scales, valid, constant=True)

    def tensors(self) -> dict[str, Integers]:
        """For a release or a model."""
        machine = (
            {f"machine.{name}": getattr(self.units, name) for name in MachineUnits.__dataclass_fields__}
            if self.units
            else {}
        )
        return {"attribute_centre": self.centre, **machine}


def width(layout: WindowLayout, groups: int | None) -> int:
    """Length of a row, for a machine of so many groups or for the window itself."""
    own = groups * layout.blocks if groups is not None else layout.attributes * layout.days
    return own + layout.attributes + 2


def assemble(
    layout: WindowLayout,
    own: Rows,
    influence: Rows,
    scales: Scales,
    valid: NDArray[np.uint8],
    *,
    constant: bool,
) -> Rows:
    """Own part scaled and cut, influence beside it, perhaps a constant.

    The cut is a projection: it brings no two rows farther apart.
    """
    scaled = clip_to_norm(np.trunc(own * (scales.gain * LIMIT / FINE_GRID)), scales.own)
    parts = [scaled, np.trunc(influence * (scales.influence * LIMIT / (FINE_GRID * layout.slots)))]
    parts += [np.full((len(own), 1), float(int(CONSTANT * LIMIT)))] if constant else []
    return check(np.concatenate(parts, axis=1) * valid.astype(np.float64)[:, None])


@dataclass(frozen=True)
class PatchMap:
    """From encoded records to the rows whose moments train a machine: (patch, x, I), one row for every
    position of a filter.
    """

    layout: WindowLayout
    centre: Integers
    scales: Scales

    def __call__(self, records: NDArray[np.float64], valid: NDArray[np.uint8]) -> Rows:
        """(n * positions, height * N + d + 1)."""
        past, present, influence = self.layout.split(records)
        patches = self.layout.patches(past - self.centre[:, None])
        times = self.layout.positions
        beside = np.repeat(present - self.centre, times, axis=0)
        own = np.concatenate([patches.reshape(-1, self.layout.patch), beside], axis=1)
        return assemble(
            self.layout,
            own,
            np.repeat(influence, times, axis=0),
            self.scales,
            np.repeat(valid, times),
            constant=False,
        )


def mean_rows(
    layout: WindowLayout, records: NDArray[np.float64], valid: NDArray[np.uint8], gain: float
) -> Rows:
    """Rows whose sum tells the mean of the attributes now, (n, d)."""
    _, present, _ = layout.split(records)
    return check(
        clip_to_norm(np.trunc(present * (gain * LIMIT / FINE_GRID)), LIMIT)
        * valid.astype(np.float64)[:, None]
    )


def units_of(tensors: Mapping[str, NDArray[Any]]) -> MachineUnits | None:
    """The machine of a release or a model, if it has one."""
    if "machine.filters" not in tensors:
        return None
    return MachineUnits(**{name: tensors[f"machine.{name}"] for name in MachineUnits.__dataclass_fields__})


@dataclass(frozen=True)
class BehaviourModel(Model):
    """A head on windows.

    Attributes:
        window: layout and scales of the rows, by name.
        units: centre and machine, as released.
    """

    window: Mapping[str, Any] = field(default_factory=dict)
    units: Tensors = field(default_factory=dict)

    def check(self) -> None:
        """As of every model, and window, centre and machine.

        Raises:
            ValueError, ParamsError: this is no model.
        """
        check_data(self.kind, self.shape, self.labels)
        whole = [self.window[name] for name in WindowLayout.__dataclass_fields__]
        parts = [self.window[name] for name in Scales.__dataclass_fields__]
        if any(type(one) is not int or not 0 < one <= 2**16 for one in whole):
            raise ValueError("the window of a model is counted in small whole numbers")
        if any(not isinstance(one, int | float) or not 0 <= one <= 64 for one in parts):
            raise ValueError("the scales of a model's rows are small numbers")
        layout = layout_of(self.shape, self.window["slots"], self.window["days"], self.window["height"])
        check_integers(self.units["attribute_centre"], (layout.attributes,), FINE_GRID)
        machine = units_of(self.units)
        if layout.attributes != self.window["attributes"] or not 0 <= parts[2] ** 2 + CONSTANT**2 < 1:
            raise ValueError("the window of a model is not that of its records")
        if machine is not None:
            groups = len(machine.hidden)
            shapes = {"filters": (groups, layout.patch), "own": (groups, layout.attributes)}
            for name in MachineUnits.__dataclass_fields__:
                check_integers(getattr(machine, name), shapes.get(name, (groups,)), 2**32)
        super().check()

    @property
    def map(self) -> FeatureMap:
        layout = WindowLayout(**{name: self.window[name] for name in WindowLayout.__dataclass_fields__})
        scales = Scales(**{name: self.window[name] for name in Scales.__dataclass_fields__})
        rows = RowMap(layout, self.units["attribute_centre"], scales, units_of(self.units))
        return FeatureMap(
            NAME, rows.own + 2, 0, True, lambda records: rows(records, np.ones(len(records), np.uint8))
        )

    def tensors(self) -> dict[str, NDArray[Any]]:
        """For model.safetensors."""
        return {**super().tensors(), **self.units}

    def describe(self) -> dict[str, Any]:
        """For model.json."""
        return {**super().describe(), "window": dict(self.window)}


def behaviour_model(document: Mapping[str, Any], tensors: Tensors) -> BehaviourModel:
    """From model.json and model.safetensors."""
    layers = [
        (tensors[f"layer{index}.weight"], tensors[f"layer{index}.offset"])
        for index in range(len(document["layers"]))
    ]
    shape, labels = tuple(document["shape"]), tuple(document["labels"])
    kept = {name: value for name, value in tensors.items() if not name.startswith("layer")}
    return BehaviourModel(
        NAME,
        document["kind"],
        shape,
        labels,
        [],
        layers,
        dict(document),
        window=document["window"],
        units=kept,
    )
