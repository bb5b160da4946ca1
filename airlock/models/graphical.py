"""Synthetic bins by a graphical model that `mbi` fits to the noisy tables (McKenna, Sheldon and Miklau 2019,
arXiv 1901.09136; the extra `synthesis`). For the open room.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import InputError
from airlock.models.distribution import Distribution
from airlock.models.shares import Shares
from airlock.models.synthesis import tree_of

LARGEST_MODEL = 0.5
"""MiB of the junction tree: what is larger takes minutes to fit."""
STEPS = 800
NOT_INSTALLED = (
    "the model mbi needs the package 'mbi', which is not installed: run `pip install "
    "'airlock-pipeline[synthesis]'`, or take the model tree"
)


def draw_bins(
    known: Distribution, shares: Shares, rows: int, seed: int, steps: int = STEPS
) -> NDArray[np.int64]:
    """The bin of each synthetic record in each column, (rows, columns).

    Measured are all columns, and as many pairs as a junction tree can hold: those of the tree first, then the
    strongest.
    """
    try:
        from mbi import Domain, LinearMeasurement
        from mbi.estimation import MirrorDescent
    except ModuleNotFoundError:
        raise InputError(NOT_INSTALLED) from None

    tables, count = known.tables, len(known.names)
    domain = Domain(tuple(range(count)), tuple(len(ones) for ones in tables.ones))
    label = count - 1
    measured: list[Any] = [
        LinearMeasurement(ones, (column,), stddev=_at_least(tables.single_deviation))
        for column, ones in enumerate(tables.ones)
    ]
    for first, second in chosen_pairs(domain, shares):
        noise = tables.label_deviation if second == label else tables.deviation
        measured.append(
            LinearMeasurement(tables.pairs[first, second].ravel(), (first, second), stddev=_at_least(noise))
        )
    model = MirrorDescent().estimate(domain, measured, known_total=tables.total, iters=steps)
    # It draws from NumPy's own generator, which has one state for all.
    np.random.seed(seed % 2**32)
    made = model.synthetic_data(rows)
    return np.column_stack([np.asarray(made.data[column], np.int64) for column in range(count)])


def chosen_pairs(domain: Any, shares: Shares) -> list[tuple[int, int]]:
    """The pairs of the tree, and others by strength while the model stays small."""
    from mbi.junction_tree import hypothetical_model_size

    tree = {
        (min(child, parent), max(child, parent)) for child, parent in tree_of(shares) if parent is not None
    }
    chosen = sorted(tree)
    ranked = sorted(
        (pair for pair, strength in shares.strength.items() if strength > 0 and pair not in tree),
        key=lambda pair: -shares.strength[pair],
    )
    for pair in ranked:
        if hypothetical_model_size(domain, [*chosen, pair]) <= LARGEST_MODEL:
            chosen.append(pair)
    return chosen


def _at_least(deviation: float) -> float:
    return max(deviation, 1e-3)
