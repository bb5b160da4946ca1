"""Filters from released patch moments: contrastive divergence whose data side is the moment matrix, so that
no record is needed.

With the sigmoid replaced by its Chebyshev series of degree 1, h = a0 + a1 w.p, the data side of the
divergence of a convolutional Boltzmann machine is E[h p] = a0 m + a1 S w: the patch moments S are all it
needs, for any number of filters (docs/proofs/patch-moments.md#guarantee). The patches have mean zero in every
channel and so have the filters, hence m = 0 up to the border. The model's side comes from persistent chains
that start from noise. Filters are kept orthogonal and short: then drives stay in [-1, 1], where the series
holds, and the fixed points are the eigenvectors of S with the largest eigenvalues, in order; `eigenvectors`
has them in closed form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.projection import eigen
from airlock.models.papers.chebyshev import polynomial
from airlock.models.papers.patches import centred

if TYPE_CHECKING:
    from airlock.models.papers.boltzmann import Machine

Floats = NDArray[np.float64]
SEED = 0
CHAINS, SIDE, STEPS = 16, 12, 200
SPREAD = 3.0
"""Standard deviations of the largest drive that fit into [-1, 1]."""
STEP_FACTOR = 4.0
"""First step, in units of 1 / (a1 times the largest eigenvalue)."""
FREE_RATE = 0.5


def eigenvectors(moments: NDArray[np.int64], count: int, side: int) -> Floats:
    """The leading eigenvectors of the centred moments, (count, size)."""
    vectors: Floats = eigen(centred(moments, side))[1][:, ::-1][:, :count].T
    return vectors


def diverge(moments: NDArray[np.int64], count: int, side: int, *, steps: int = STEPS) -> Floats:
    """Train `count` filters by contrastive divergence with persistent chains; (count, size), orthonormal.

    Public seed, one thread.
    """
    import torch

    from airlock.models.papers.boltzmann import Biases, Chain, Machine, statistics

    target, length = _units(moments, count, side)
    largest = (SPREAD * length) ** -2
    # Hidden units less a0 on both sides (the centring of Montavon and Mueller 2012): a0 m is zero, but noisy
    # where it is sampled.
    middle, slope = polynomial("chebyshev-1").alphas
    channels = len(target) // side**2
    drawn = torch.Generator().manual_seed(SEED)
    chain, none = Chain(gaussian=True), Biases()
    zeros = torch.zeros(count + channels, dtype=torch.float64)
    with one_thread():
        visible = torch.randn(CHAINS, channels, SIDE, SIDE, generator=drawn, dtype=torch.float64)
        filters = _orthonormal(
            torch.randn(count, len(target), generator=drawn, dtype=torch.float64).numpy(), side
        )
        for step in range(steps):
            shaped = torch.from_numpy(length * filters).reshape(count, channels, side, side)
            machine = Machine(shaped, zeros[:count], zeros[count:])
            visible = chain.step(machine, visible, drawn, none)
            hidden = chain.hidden(machine, visible, none) - middle
            found = statistics(machine, visible, hidden).filters.reshape(count, -1).numpy()
            gap = slope * length * filters @ target - found / (SIDE - side + 1) ** 2
            rate = STEP_FACTOR / (slope * length * largest) * (1 - step / steps)
            filters = _orthonormal(filters + rate * gap, side)
    return filters


def diverge_freely(
    moments: Floats, mean: float, count: int, side: int, *, alphas: Sequence[float], steps: int = STEPS
) -> Machine:
    """Contrastive divergence as published, from moments instead of records: filters of any number with
    biases, visible units binary.

    Args:
        moments: of patches with a constant 1 at their end, per patch (size + 1, size + 1); they may be noisy.
        mean: of the visible units.
        count: of filters.
        side: of a patch.
        alphas: a0 and a1 of the sigmoid's approximation.
        steps: of the divergence.

    Returns:
        A machine whose drives are in [-1, 1] for every patch in [0, 1]: sum |w| + |b| <= 1 for each filter.
    """
    import torch

    from airlock.models.papers.boltzmann import Biases, Chain, Machine, statistics

    size = len(moments) - 1
    channels, positions = size // side**2, (SIDE - side + 1) ** 2
    drawn, chain, none = torch.Generator().manual_seed(SEED), Chain(), Biases()
    data = torch.from_numpy(moments)
    with one_thread():
        visible = torch.rand(CHAINS, channels, SIDE, SIDE, generator=drawn, dtype=torch.float64)
        rows = torch.randn(count, size + 1, generator=drawn, dtype=torch.float64)
        offset = torch.zeros(channels, dtype=torch.float64)
        for step in range(steps):
            rows = rows / rows.abs().sum(1, keepdim=True).clamp_min(1)
            machine = Machine(rows[:, :-1].reshape(count, channels, side, side), rows[:, -1], offset)
            visible = chain.step(machine, visible, drawn, none)
            found = statistics(machine, visible, chain.hidden(machine, visible, none))
            model = torch.cat([found.filters.reshape(count, -1), found.hidden[:, None]], 1) / positions
            rate = FREE_RATE * (1 - step / steps)
            rows = rows + rate * (alphas[0] * data[-1] + alphas[1] * rows @ data - model)
            offset = offset + rate * (mean - visible.mean((0, 2, 3)))
    return Machine(machine.filters.float(), machine.hidden.float(), offset.float())


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums in one order, so that the same moments give the same filters."""
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(threads)


def _units(moments: NDArray[np.int64], count: int, side: int) -> tuple[Floats, float]:
    """Moments in units where the directions beyond `count` have variance 1, the chains' noise; and how long a
    filter may be there.
    """
    matrix = centred(moments, side).astype(np.float64)
    values = np.linalg.eigvalsh(matrix)[::-1]
    # One direction of every channel is the mean, which is gone.
    rest = values[count : len(values) - len(values) // side**2]
    floor = max(float(rest.mean()) if len(rest) else 0.0, float(values[0]) * 1e-3, 1e-300)
    return matrix / floor, 1.0 / (SPREAD * float(np.sqrt(max(values[0], floor) / floor)))


def _orthonormal(filters: Floats, side: int) -> Floats:
    """Without channel means, each orthogonal to those before it, of length 1."""
    flat = filters.reshape(len(filters), -1, side * side)
    flat = (flat - flat.mean(axis=2, keepdims=True)).reshape(len(filters), -1)
    turned, upper = np.linalg.qr(flat.T)
    rows: Floats = (turned * np.where(np.diag(upper) < 0, -1.0, 1.0)).T
    return rows
