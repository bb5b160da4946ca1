"""The human behaviour model: Eqs.

23-26 against sums written out, training without records, integers against real numbers.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from airlock.errors import ParamsError
from airlock.models.features.rows import LIMIT
from airlock.models.papers import dynamics
from airlock.models.papers.behaviour import (
    FINE_GRID,
    WEIGHT,
    MachineUnits,
    PatchMap,
    RowMap,
    Scales,
    WindowLayout,
    layout_of,
    width,
)
from airlock.models.papers.boltzmann import Machine

SMALL = WindowLayout(attributes=7, days=3, slots=4, height=3)
SCALES = Scales(1.0, 2.0, 0.3)


def records(n: int, seed: int = 0, layout: WindowLayout = SMALL) -> np.ndarray:
    random = np.random.default_rng(seed)
    x = random.random((n, layout.attributes * (layout.days + 1) + layout.slots))
    x[:, -layout.slots :] *= random.random((n, layout.slots)) < 0.7
    return x


def units(layout: WindowLayout = SMALL, groups: int = 2, seed: int = 0, social: float = 0.1) -> MachineUnits:
    random = np.random.default_rng(seed)
    eta = random.standard_normal(groups)
    eta *= social / np.linalg.norm(eta)
    whole = [
        random.standard_normal(size) * WEIGHT / 2
        for size in ((groups, layout.patch), groups, (groups, layout.attributes))
    ]
    average = random.integers(0, FINE_GRID, groups)
    return MachineUnits(
        *(np.rint(part).astype(np.int64) for part in whole),
        np.trunc(eta * WEIGHT / layout.slots).astype(np.int64),
        average,
    )


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def test_equations_23_to_26_are_what_the_paper_writes() -> None:
    """Every sum of the paper by a loop of its own: K groups, N_H x 1 positions, filters flipped in W~, mean
    over the friends.
    """
    random = np.random.default_rng(3)
    d, days, groups, height, n = 5, 2, 3, 2, 4
    W, b, c = (
        random.standard_normal((groups, height, days)),
        random.standard_normal(groups),
        float(random.standard_normal()),
    )
    B, A = random.standard_normal((groups, d)), random.standard_normal(d)
    eta_hidden, eta_visible = random.standard_normal(groups), float(random.standard_normal())
    v, x = random.random((n, d, days)), random.random((n, d))
    psi, friends = random.random((n, 6)), random.random((n, 6)) < 0.6
    friends[0] = False
    machine = Machine(*(torch.from_numpy(part) for part in (W[:, None], b, np.array([c]))))
    dynamic = dynamics.Dynamics(
        *(torch.from_numpy(np.asarray(part)) for part in (B, eta_hidden, A, eta_visible))
    )
    influence = dynamics.mean_influence(torch.from_numpy(psi), torch.from_numpy(friends.astype(float)))
    biases = dynamic.biases(torch.from_numpy(x), influence)
    hidden = torch.sigmoid(machine.drive(torch.from_numpy(v)[:, None], biases.hidden)).numpy()
    h = random.random((n, groups, d - height + 1, 1))
    visible = torch.sigmoid(machine.answer(torch.from_numpy(h), biases.visible)).numpy()
    for t in range(n):
        chosen = [psi[t, f] for f in range(6) if friends[t, f]]
        social = sum(chosen) / len(chosen) if chosen else 0.0
        for k in range(groups):
            bias = b[k] + sum(B[k, e] * x[t, e] for e in range(d)) + eta_hidden[k] * social  # Eq. 25
            for i in range(d - height + 1):
                total = sum(W[k, r, s] * v[t, i + r, s] for r in range(height) for s in range(days))
                assert hidden[t, k, i, 0] == pytest.approx(sigmoid(total + bias), abs=1e-12)  # Eq. 23
        bias = c + sum(A[e] * x[t, e] for e in range(d)) + eta_visible * social  # Eq. 26
        for i in range(d):
            for j in range(days):
                total = sum(
                    W[k, r, j] * h[t, k, i - r, 0]
                    for k in range(groups)
                    for r in range(height)
                    if 0 <= i - r < d - height + 1
                )
                assert visible[t, 0, i, j] == pytest.approx(sigmoid(total + bias), abs=1e-12)  # Eq. 24


def test_integer_units_are_the_equations_in_real_numbers() -> None:
    """Eqs. 23 and 25 with pooling in pairs, record by record in floating point; the grid makes a difference
    of a few parts in 10^4.
    """
    machine, x = units(), records(6)
    past, present, influence = SMALL.split(x)
    found = machine.probabilities(SMALL, past, present, influence) / FINE_GRID
    d, days = SMALL.attributes, SMALL.days
    for n, record in enumerate(x):
        v, now, slots = (
            record[: d * days].reshape(d, days),
            record[d * days : d * days + d],
            record[-SMALL.slots :],
        )
        social = sum(2 * psi - 1 for psi in slots if psi > 0) / SMALL.slots
        for k in range(2):
            eta = machine.social[k] / WEIGHT * SMALL.slots
            bias = (machine.hidden[k] + machine.own[k] @ now) / WEIGHT + eta * social
            drives = [
                bias
                + sum(
                    machine.filters[k, r * days + s] / WEIGHT * v[i + r, s]
                    for r in range(3)
                    for s in range(days)
                )
                for i in range(5)
            ]
            for block in range(3):
                powers = sum(math.exp(drive) for drive in drives[2 * block : 2 * block + 2])
                assert found[n, k, block] == pytest.approx(powers / (1 + powers), abs=5e-4)


@pytest.mark.parametrize("machine", [None, units()])
def test_a_row_does_not_depend_on_the_batch(machine: MachineUnits | None) -> None:
    rows = RowMap(SMALL, np.full(7, FINE_GRID // 3), SCALES, machine)
    x = records(50)
    together = rows(x, np.ones(50, np.uint8))
    assert together.shape == (50, width(SMALL, 2 if machine else None))
    assert (np.sqrt((together**2).sum(1)) <= LIMIT).all()
    assert np.array_equal(
        together, np.concatenate([rows(x[i : i + 1], np.ones(1, np.uint8)) for i in range(50)])
    )
    assert not rows(x, np.zeros(50, np.uint8)).any()


def moments_of(x: np.ndarray, layout: WindowLayout = SMALL) -> np.ndarray:
    rows = (
        PatchMap(layout, np.full(layout.attributes, FINE_GRID // 2), SCALES)(x, np.ones(len(x), np.uint8))
        / LIMIT
    )
    return rows.T @ rows / len(rows)


def test_training_finds_what_the_moments_say() -> None:
    """Filters lie in the span of the leading patch directions; x has weight where it goes along with the
    patches, and none where not.
    """
    random = np.random.default_rng(0)
    x, past = records(2000), SMALL.attributes * SMALL.days
    common = random.random((2000, 2)) - 0.5
    for column in range(past):
        x[:, column] = (
            0.5
            + (0.4 if column % 3 == 0 else 0.1) * common[:, column % 2]
            + 0.02 * random.standard_normal(2000)
        )
    for together in (False, True):
        alone = 0.4 * (random.random((2000, SMALL.attributes)) - 0.5)
        x[:, past : past + SMALL.attributes] = 0.5 + (0.4 * common[:, :1] if together else alone)
        moments = moments_of(x)
        machine, dynamic = dynamics.train(moments, SMALL, 2)
        filters, beside = (
            machine.filters.reshape(2, -1).numpy(),
            np.column_stack([dynamic.own.numpy(), dynamic.social.numpy()]),
        )
        leading = np.linalg.eigh(moments[: SMALL.patch, : SMALL.patch])[1][:, -2:]
        lengths = np.linalg.norm(filters, axis=1)
        assert (np.linalg.norm(filters @ leading, axis=1) > 0.9 * lengths).all()
        share = (np.linalg.norm(beside, axis=1) / lengths).max()
        assert share > 0.3 if together else share < 0.05
    again = dynamics.train(moments, SMALL, 2)
    assert torch.equal(again[0].filters, machine.filters) and torch.equal(again[1].social, dynamic.social)


def test_eta_is_cut_and_the_average_is_that_of_the_units() -> None:
    x = records(3000)
    moments = moments_of(x)
    machine, dynamic = dynamics.train(moments, SMALL, 2)
    for social in (1e-3, 5.0):
        made = dynamics.integers(machine, dynamic, SMALL, moments, scales=SCALES, social=social)
        assert np.linalg.norm(made.social) <= social * WEIGHT / SMALL.slots
    past, present, influence = SMALL.split(x)
    units_on = made.probabilities(SMALL, past - FINE_GRID // 2, present - FINE_GRID // 2, influence)[
        :, :, :-1
    ].mean((0, 2))
    assert units_on == pytest.approx(made.average, abs=0.02 * FINE_GRID)


def test_shapes_that_are_no_windows_are_refused() -> None:
    assert layout_of((166,), 16, 4, 12) == WindowLayout(30, 4, 16, 12)
    assert (
        WindowLayout(30, 4, 16).positions,
        WindowLayout(30, 4, 16).blocks,
        WindowLayout(30, 4, 16).patch,
    ) == (19, 10, 48)
    with pytest.raises(ParamsError, match="not 3 \\+ 1 times"):
        layout_of((166,), 16, 3, 12)
    with pytest.raises(ParamsError, match="height is 1 to 30"):
        layout_of((166,), 16, 4, 31)
