"""Filters from released patch moments: contrastive divergence whose data side is the moment matrix, so that no record is needed.

With the sigmoid replaced by its Chebyshev series of degree 1, h = a0 + a1 w.p, the data side of the divergence of a convolutional
Boltzmann machine is E[h p] = a0 m + a1 S w: the patch moments S are all it needs, for any number of filters (MECHANISMS.md 4c). The
patches have mean zero in every channel and so have the filters, hence m = 0 up to the border. The model's side comes from persistent
chains that start from noise. Filters are kept orthogonal and short: then drives stay in [-1, 1], where the series holds, and the
fixed points are the eigenvectors of S with the largest eigenvalues, in order; `eigenvectors` has them in closed form.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stages.models.chebyshev import polynomial
from stages.models.patches import centred
from stages.models.projection import eigen

Floats = NDArray[np.float64]
SEED = 0
CHAINS, SIDE, STEPS = 16, 12, 200
SPREAD = 3.0
"""Standard deviations of the largest drive that fit into [-1, 1]."""
BOLDNESS = 4.0
"""First step, in units of 1 / (a1 times the largest eigenvalue)."""


def eigenvectors(moments: NDArray[np.int64], count: int, side: int) -> Floats:
    """The leading eigenvectors of the centred moments, (count, size)."""
    vectors: Floats = eigen(centred(moments, side))[1][:, ::-1][:, :count].T
    return vectors


def diverge(moments: NDArray[np.int64], count: int, side: int, *, steps: int = STEPS) -> Floats:
    """Train `count` filters by contrastive divergence with persistent chains; (count, size), orthonormal. Public seed, one thread."""
    import torch
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    from stages.models.boltzmann import Biases, Chain, Machine, statistics

    target, length = _units(moments, count, side)
    slope = polynomial("chebyshev-1").alphas[1]
    channels = len(target) // side**2
    drawn = torch.Generator().manual_seed(SEED)
    chain, none = Chain(gaussian=True), Biases()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            visible = torch.randn(CHAINS, channels, SIDE, SIDE, generator=drawn, dtype=torch.float64)
            start = torch.randn(count, len(target), generator=drawn, dtype=torch.float64).numpy()
            filters = _orthonormal(start, side)
            for step in range(steps):
                machine = Machine(
                    torch.from_numpy(length * filters).reshape(count, channels, side, side),
                    torch.zeros(count, dtype=torch.float64),
                    torch.zeros(channels, dtype=torch.float64),
                )
                visible = chain.step(machine, visible, drawn, none)
                found = statistics(machine, visible, chain.hidden(machine, visible, none)).filters.reshape(count, -1).numpy()
                gap = slope * length * filters @ target - found / (SIDE - side + 1) ** 2
                rate = BOLDNESS / (slope * length * float(np.abs(target).sum(axis=1).max())) * (1 - step / steps)
                filters = _orthonormal(filters + rate * gap, side)
    finally:
        torch.set_num_threads(threads)
    return filters


def _units(moments: NDArray[np.int64], count: int, side: int) -> tuple[Floats, float]:
    """Moments in units where the directions beyond `count` have variance 1, the chains' noise; and how long a filter may be there."""
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
