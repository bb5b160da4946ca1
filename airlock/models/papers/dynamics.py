"""A convolutional Boltzmann machine with biases that depend on the record (Eqs. 23-26), trained without
records.

    hidden    h_k = sigmoid((W~_k * v) + b_k + B_k.x + eta_k I)            Eqs. 23 and 25
    visible   v   = sum over k of (W_k * h_k) + c + A.x + eta I + noise     Eqs. 24 and 26, Gaussian units for
                                                                            attributes are numbers

With the sigmoid replaced by its Chebyshev series of degree 1 the data side of contrastive divergence is a1 S
w, where w = (W_k, B_k, eta_k) and S holds the moments of (patch, x, I): one released matrix trains all groups
(docs/proofs/patch-moments.md#guarantee, airlock/models/papers/filters.py). The model's side comes from
persistent chains that start from noise; their x and I, which the model takes as given, are drawn from the
Gaussian that S describes. The weights of all groups are kept orthogonal and so short that drives stay in [-1,
1], where the series holds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from airlock.models.papers.behaviour import FINE_GRID, POOL, WEIGHT, MachineUnits, Scales, WindowLayout
from airlock.models.papers.boltzmann import Biases, Chain, Machine, pool, statistics
from airlock.models.papers.chebyshev import polynomial

Floats = NDArray[np.float64]
SEED = 0
CHAINS, STEPS = 128, 200
STEP_FACTOR = 4.0
SPREAD = 3.0
"""Standard deviations of the largest drive that fit into [-1, 1]."""
FLOOR = 1e-8
"""Rows have length at most 1; below this variance there is nothing to learn from them."""


@dataclass(frozen=True)
class Dynamics:
    """What makes biases dynamic: B (K, d) and eta (K) for hidden
    units, A (d) and one eta for visible ones.
    """

    own: Tensor
    social: Tensor
    visible_own: Tensor
    visible_social: Tensor

    def biases(self, present: Tensor, influence: Tensor) -> Biases:
        """Eqs. 25 and 26 less the machine's own b and c, for x (n, d) and the mean influence (n,)."""
        hidden = present @ self.own.T + influence[:, None] * self.social
        visible = present @ self.visible_own + influence * self.visible_social
        return Biases(hidden, visible[:, None])


def mean_influence(influence: Tensor, friends: Tensor) -> Tensor:
    """(1 / |F_u|) sum of psi over the friends of u, as in the paper; 0 for a user without friends."""
    return (influence * friends).sum(1) / friends.sum(1).clamp_min(1)


def train(
    moments: Floats, layout: WindowLayout, groups: int, *, steps: int = STEPS
) -> tuple[Machine, Dynamics]:
    """A machine from the noisy second moments of rows (patch, x, I), for rows in the same unit.

    Public seed, one thread.
    """
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            return _diverge(moments, layout, groups, steps)
    finally:
        torch.set_num_threads(threads)


def _diverge(moments: Floats, layout: WindowLayout, groups: int, steps: int) -> tuple[Machine, Dynamics]:
    target, length, unit = _units(moments, groups, layout.patch)
    drawn = torch.Generator().manual_seed(SEED)
    slope, patch = polynomial("chebyshev-1").alphas[1], layout.patch
    beside = _beside(target[patch:, patch:], drawn)
    visible = torch.randn(
        len(beside), 1, layout.attributes, layout.days, generator=drawn, dtype=torch.float64
    )
    weights = _orthonormal(torch.randn(groups, len(target), generator=drawn, dtype=torch.float64).numpy())
    answer, chain = np.zeros(len(target) - patch), Chain(gaussian=True)
    steep = 2 * float(np.abs(target[patch:, patch:]).sum(axis=1).max())
    for step in range(steps):
        machine, dynamics = _machine(length * weights, answer, layout)
        biases = dynamics.biases(beside[:, :-1], beside[:, -1])
        visible = chain.step(machine, visible, drawn, biases)
        # The same series on both sides, without its constant: rows have mean zero, and what x and I do by
        # themselves cancels.
        hidden = slope * machine.drive(visible, biases.hidden)
        found = statistics(machine, visible, hidden).filters.reshape(groups, -1) / layout.positions
        beside_found = torch.einsum("nk,nd->kd", hidden.mean((2, 3)), beside) / len(beside)
        gap = slope * length * weights @ target - torch.cat([found, beside_found], 1).numpy()
        rate = STEP_FACTOR / (slope * length * float(np.abs(target).sum(axis=1).max())) * (1 - step / steps)
        weights = _orthonormal(weights + rate * gap)
        # Eq. 26 has one bias for all visible units of a record: what their mean has in common with x and I.
        drift = target[:patch, patch:].mean(axis=0) - (visible.mean((1, 2, 3)) @ beside / len(beside)).numpy()
        answer = answer + drift / steep
    return _machine(length / unit * weights, answer, layout)


def _machine(weights: Floats, answer: Floats, layout: WindowLayout) -> tuple[Machine, Dynamics]:
    patch, whole = layout.patch, torch.from_numpy(weights)
    filters = whole[:, :patch].reshape(len(weights), 1, layout.height, layout.days)
    none = torch.zeros(len(weights), dtype=torch.float64)
    visible = torch.from_numpy(answer)
    return Machine(filters, none, none[:1]), Dynamics(
        whole[:, patch:-1], whole[:, -1], visible[:-1], visible[-1]
    )


def _units(moments: Floats, groups: int, patch: int) -> tuple[Floats, float, float]:
    """Moments in units where patches beyond `groups` directions have variance 1, the chains' noise; how long
    weights may be; the unit.
    """
    values = np.linalg.eigvalsh(moments[:patch, :patch])[::-1]
    largest = float(np.linalg.eigvalsh(moments)[-1])
    floor = max(float(values[groups:].mean()) if groups < patch else 0.0, largest * 1e-3, FLOOR)
    return (
        moments / floor,
        1.0 / (SPREAD * float(np.sqrt(max(largest, floor) / floor))),
        float(np.sqrt(floor)),
    )


def _beside(moments: Floats, drawn: torch.Generator) -> Tensor:
    """x and I of every chain: Gaussian, with exactly the released
    moments (negative eigenvalues are noise).
    """
    values, vectors = np.linalg.eigh(moments)
    count = max(CHAINS, 2 * len(moments))
    normal = torch.randn(count, len(moments), generator=drawn, dtype=torch.float64).numpy()
    normal = np.linalg.qr(normal - normal.mean(axis=0))[0] * np.sqrt(count)
    return torch.from_numpy(normal @ (vectors * np.sqrt(np.maximum(values, 0.0))).T)


def _orthonormal(weights: Floats) -> Floats:
    """Each orthogonal to those before it, of length 1."""
    turned, upper = np.linalg.qr(weights.T)
    rows: Floats = (turned * np.where(np.diag(upper) < 0, -1.0, 1.0)).T
    return rows


def integers(
    machine: Machine,
    dynamics: Dynamics,
    layout: WindowLayout,
    moments: Floats,
    *,
    scales: Scales,
    social: float,
) -> MachineUnits:
    """The machine on attributes in [0, 1] and influence in [-1, 1], in integers.

    Args:
        machine, dynamics: trained on rows.
        layout: of the records.
        moments: what they were trained on, for the mean of a pooled unit.
        scales: of the rows.
        social: the norm of eta is cut to this; what one friend can do to the hidden units is bounded by it.
    """
    filters, own = (
        machine.filters.reshape(len(machine.filters), -1).numpy() * scales.gain,
        dynamics.own.numpy() * scales.gain,
    )
    eta = dynamics.social.numpy() * scales.influence
    eta = eta * min(1.0, social / max(float(np.linalg.norm(eta)), 1e-300))
    weights = np.concatenate(
        [
            machine.filters.reshape(len(filters), -1).numpy(),
            dynamics.own.numpy(),
            dynamics.social.numpy()[:, None],
        ],
        1,
    )
    return MachineUnits(
        np.rint(filters * WEIGHT).astype(np.int64),
        np.rint(machine.hidden.numpy() * WEIGHT).astype(np.int64),
        np.rint(own * WEIGHT).astype(np.int64),
        np.trunc(eta * WEIGHT / layout.slots).astype(np.int64),
        _average(weights, moments),
    )


def _average(weights: Floats, moments: Floats) -> NDArray[np.int64]:
    """Mean of a pooled unit when drives are Gaussian with the variance that the moments give them, in units
    of 1/FINE_GRID.
    """
    drawn = torch.Generator().manual_seed(SEED)
    deviations = np.sqrt(np.maximum(np.einsum("kd,de,ke->k", weights, moments, weights), 0.0))
    drives = (
        torch.randn(4096, len(weights), POOL, 1, generator=drawn, dtype=torch.float64)
        * torch.from_numpy(deviations)[:, None, None]
    )
    average: NDArray[np.int64] = np.rint(pool(drives, POOL)[1].mean((0, 2, 3)).numpy() * FINE_GRID).astype(
        np.int64
    )
    return average
