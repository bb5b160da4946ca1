"""The degree-2 loss of AdLM (Phan et al., Eq. 25): cross-entropy of M independent logistic outputs, expanded
around 0.

    y log(1 + e^-z) + (1 - y) log(1 + e^z)  =  log 2 + (1/2 - y) z + z^2 / 8 - error

The error does not depend on y: with log(1 + e^z) = z/2 + log(2 cosh(z/2)) it is log 2 + z^2/8 - log(2
cosh(z/2)), and because u - u^3/3 <= tanh u <= u for u >= 0, integrating twice gives 0 <= error <= z^4 / 192
for every z. The paper's Lemma 7 needs |z| <= 1 and has M (e^2 + 2e - 1) / (e (1 + e)^2) = 0.315 M, by a wrong
third derivative; there the bound here is M / 192 = 0.0052 M.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

ORDERS = 3


def coefficients(labels: NDArray[Any], classes: int) -> NDArray[np.float64]:
    """(n, 3, classes): log 2, 1/2 - y, 1/8 for each record and class; only the middle row depends on the
    record.

    A null record (label -1) has y = 0 for every class.
    """
    table = np.empty((len(labels), ORDERS, classes))
    table[:, 0], table[:, 1], table[:, 2] = np.log(2), 0.5, 0.125
    known = np.flatnonzero(labels >= 0)
    table[known, 1, labels[known]] -= 1.0
    return table


def polynomial(scores: Any, table: Any) -> Any:
    """Sum over classes of the three terms, for each record. Takes NumPy arrays and torch tensors alike."""
    return (table[:, 0] + table[:, 1] * scores + table[:, 2] * scores * scores).sum(-1)


def cross_entropy(scores: NDArray[np.float64], labels: NDArray[Any]) -> NDArray[np.float64]:
    """What `polynomial` approximates, for each record."""
    hot = np.zeros_like(scores)
    known = np.flatnonzero(labels >= 0)
    hot[known, labels[known]] = 1.0
    losses: NDArray[np.float64] = (np.logaddexp(0.0, scores) - hot * scores).sum(-1)
    return losses


def error_bound(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The polynomial is never below cross-entropy, and above it by at most this: sum of z^4 / 192."""
    bound: NDArray[np.float64] = (scores**4).sum(-1) / 192
    return bound
