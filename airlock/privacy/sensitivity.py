"""How far one record can move a sum: L2 (and L1) sensitivities, proven here and searched for counter-examples
in the tests.

u, v are integer feature rows of norm at most S = `norm`, y, z label rows, t = u.v. Under zero-out the null
record adds nothing, so the sensitivity is the largest norm of one contribution; under replace-one it is the
largest distance of two. `non_negative` means that every entry of every row is >= 0 (then t >= 0). Squares are
computed exactly and roots rounded up, so each answer is a bound in floats too.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from airlock.privacy.guarantees import Neighbours
from airlock.privacy.rounding import float_above, root_above

Labels = Literal["one-hot", "centred"]


def mean(norm: int, *, neighbours: Neighbours = "zero-out", non_negative: bool = False) -> float:
    """Of sum u (the mean is this sum divided by the public n).

    zero-out: |u| <= S. replace-one: |u - v|^2 = |u|^2 + |v|^2 - 2t <= 4 S^2 at v = -u, and <= 2 S^2 where t
    >= 0.
    """
    return _pick(neighbours, Fraction(norm) ** 2, (2 if non_negative else 4) * Fraction(norm) ** 2)


def gram(norm: int, *, neighbours: Neighbours = "zero-out") -> float:
    """Of sum u u^T in Frobenius norm.

    zero-out: |u u^T| = |u|^2 <= S^2. replace-one: |u u^T - v v^T|^2 = |u|^4 + |v|^4 - 2 t^2 <= 2 S^4, reached
    by orthogonal rows (lemma P: for positive semidefinite contributions the inner product is never negative).
    """
    return _pick(neighbours, Fraction(norm) ** 4, 2 * Fraction(norm) ** 4)


def moment(norm: int, size: int, *, neighbours: Neighbours = "zero-out") -> float:
    """Of a sum of symmetric `size` x `size` matrices A = trunc(P), P positive semidefinite, |P| <= norm and
    |A| <= norm in Frobenius norm.

    zero-out: |A| <= C. replace-one: A = P + E where every entry of E is below 1, so |E| <= d and, as tr(P Q)
    >= 0 (lemma P), tr(A B) >= -2 C d - d^2: |A - B|^2 <= 2 C^2 + 4 C d + 2 d^2 = 2 (C + d)^2. The d is what
    the grid costs: a truncated matrix need not be semidefinite.
    """
    return _pick(neighbours, Fraction(norm) ** 2, 2 * Fraction(norm + size) ** 2)


def cross(
    norm: int,
    *,
    labels: Labels,
    classes: int,
    neighbours: Neighbours = "zero-out",
    non_negative: bool = False,
) -> float:
    """Of sum u y^T in Frobenius norm, with labels as `sums.label_rows` writes them: one-hot, or centred as
    the integers M * one-hot - 1.

    |u y^T - v z^T|^2 = |u|^2 |y|^2 + |v|^2 |z|^2 - 2 t (y.z). With one-hot labels |y| = 1 and y.z is 1 or 0; with
    centred ones
    |y|^2 = M (M - 1) and y.z is M (M - 1) or -M.
    zero-out: S |y|. replace-one: the same label and v = -u give 2 S |y|, which is the most, for another label
    gives at most 2 S^2 (|y|^2 + M) <= 4 S^2 |y|^2. Where t >= 0: one-hot sqrt 2 S (t = 0); centred sqrt 2 M S
    (another label and v = u).
    """
    square, apart = _label_products(labels, classes)
    area = Fraction(norm) ** 2
    return _pick(
        neighbours, area * square, 2 * area * (square - apart) if non_negative else 4 * area * square
    )


def bounded_cross(norm: int, other_norm: int, *, neighbours: Neighbours = "zero-out") -> float:
    """Of sum u r^T for rows r (residuals, say) of norm at most `other_norm`: S R under zero-out, 2 S R under
    replace-one.
    """
    square = Fraction(norm) ** 2 * Fraction(other_norm) ** 2
    return _pick(neighbours, square, 4 * square)


def averages(columns: int, half: int, *, neighbours: Neighbours = "zero-out") -> float:
    """Of sum (c, h), with `columns` entries c from -half to half - 1 and one entry `half` for the class.

    zero-out: |(c, h)|^2 <= columns half^2 + half^2. replace-one: each column differs by at most 2 half - 1, and two
    classes by half sqrt 2.
    """
    square = Fraction(half) ** 2
    return _pick(neighbours, (columns + 1) * square, columns * Fraction(2 * half - 1) ** 2 + 2 * square)


def histograms(columns: int, *, energy: int = 1, neighbours: Neighbours = "zero-out") -> float:
    """Of the counts in the bins of so many columns, each of which has a record in exactly one bin: a one
    there, or at several levels numbers whose squares sum to `energy` at most.

    zero-out: that in every column. replace-one: at most that twice a column, as no number is negative.
    """
    return _pick(neighbours, Fraction(columns * energy), Fraction(2 * columns * energy))


def marginals(
    sizes: Sequence[int],
    *,
    grid: int,
    single: float,
    label: float,
    pair: float,
    neighbours: Neighbours = "zero-out",
) -> float:
    """Of all tables of one and of two columns, in the coordinates of airlock/models/marginals.py: bins of
    each column, the label last; weights of the tables of one column, of the label with another, of others.

    b = 1 - 1/B is the squared length of e - 1/B. zero-out: every record has the same length, and its square
    is 1 + single^2 sum b + sum w^2 b b'. replace-one, where x tells in which columns two records differ:
    half of the squared distance is sum single^2 x + sum w^2 (x b' + x' b - x x'), which for a given x of the
    label and a given number of other columns that differ is a sum over columns: the largest are taken
    (docs/proofs/inputs.md#sensitivity). A column of fewer bins than are said here does not move more.
    """
    area = Fraction(grid) ** 2
    weights = [Fraction(weight) ** 2 for weight in (single, label, pair)]
    spread = [1 - Fraction(1, size) for size in sizes]
    zero_out = 1 + weights[0] * sum(spread)
    *others, last = spread
    inner = sum(others)
    zero_out += weights[1] * last * inner
    zero_out += weights[2] * (inner * inner - sum(one * one for one in others)) / 2
    if neighbours == "zero-out":
        return root_above(area * zero_out)
    return root_above(area * max(zero_out, 2 * _farthest(others, last, *weights)))


def _farthest(
    others: Sequence[Fraction], last: Fraction, single: Fraction, label: Fraction, pair: Fraction
) -> Fraction:
    """Half of the largest squared distance of two records' tables."""
    inner, best = sum(others, Fraction(0)), Fraction(0)
    for label_differs in (False, True) if last > 0 else (False,):
        gain = single + label * inner if label_differs else Fraction(0)
        best = max(best, gain)
        # A column with one bin cannot differ.
        steps = sorted(
            (single + pair * (inner - one) + label * (last - label_differs) for one in others if one > 0),
            reverse=True,
        )
        for before, step in enumerate(steps):
            gain += step - pair * before
            best = max(best, gain)
    return best


def of_user(sensitivity: float, records: int) -> float:
    """Sensitivity to one user who has at most `records` records:
    as many steps, by the triangle inequality.
    """
    return float_above(Fraction(sensitivity) * records)


def of_bounded_user(
    bound: int,
    appearances: int,
    change: float,
    *,
    neighbours: Neighbours = "zero-out",
    positive: bool = False,
) -> float:
    """Sensitivity to one user whose own total has norm at most `bound`, and who is in `appearances` slots of
    other users' records.

    `change` is how far a slot that is emptied (or filled) moves the cut total of the slot's owner. zero-out:
    the own total goes, and every slot is emptied, one after the other. replace-one: the own total is replaced
    (at most 2 bounds away; sqrt 2 where totals are positive semidefinite), the old slots are emptied and as
    many new ones filled.
    """
    own = root_above(Fraction(bound) ** 2 * (1 if neighbours == "zero-out" else 2 if positive else 4))
    return float_above(Fraction(own) + Fraction(change) * _double(neighbours, appearances))


def _label_products(labels: Labels, classes: int) -> tuple[int, int]:
    """|y|^2, and y.z of two different labels."""
    if classes < 2:
        raise ValueError(f"labels need at least two classes, got {classes}")
    return (1, 0) if labels == "one-hot" else (classes * (classes - 1), -classes)


def _pick(neighbours: Neighbours, zero_out: Fraction, replace_one: Fraction) -> float:
    return root_above(zero_out if neighbours == "zero-out" else replace_one)


def _double(neighbours: Neighbours, zero_out: int) -> int:
    return zero_out if neighbours == "zero-out" else 2 * zero_out
