"""A trial: what a private learner whose noise is not Gaussian reaches on WDBC and Dermatology.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.small_trees            about five minutes of a core
    python -m bench.papers.small_trees --page                                      only the table of its page

The exponential mechanism over decision trees: a tree is drawn with probability in proportion to its prior times
exp(-epsilon errors), errors being the training records that it answers wrongly. A null record is never answered
wrongly, so under zero-out every weight moves the same way and by at most exp(epsilon): that is epsilon-DP, delta 0
(docs/proofs/small-tables.md#a-trial-with-trees). All trees with at most four tests on the way to an answer are summed
over, so that the draw is exact but for floating point, which is why this is a simulation and not a release. A test is
"the column is above a quarter (or a half) of its public range". Depth, cuts and prior were looked at on these very
tables. Written to bench/results/papers/small-trees.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.files import replacing
from bench.papers import small_tables
from bench.papers.small_learners import EPSILONS, OWN, TENTH, Labels, Values
from bench.papers.small_tables import PAGE, ROOT, TABLES

RESULTS = ROOT / "bench/results/papers/small-trees.json"
MARKS = ("<!-- trees -->", "<!-- end of trees -->")
CUTS, DEPTH, SPLITTING = (0.25, 0.5), 4, 0.8
"""Of a column's range; tests at most on the way to an answer; the prior chance that a node tests."""
Bits = NDArray[np.float32]
Tree = int | tuple[int, "Tree", "Tree"]
"""A label, or a test and what follows where it is passed and where it is not."""


def passed(x: Values) -> Bits:
    """Which tests each record passes, (n, tests); tests that all pass or none are kept, for they are public too."""
    return np.concatenate([x > cut for cut in CUTS], axis=1).astype(np.float32)


@dataclass(frozen=True)
class Trees:
    """All trees over some tests, weighted by the records that they answer wrongly.

    Attributes:
        tests: (n, tests), 0 or 1.
        labels: of the records.
        classes: how many there are.
        epsilon, depth: of the draw.
    """

    tests: Bits
    labels: Labels
    classes: int
    epsilon: float
    depth: int = DEPTH

    @cached_property
    def sides(self) -> Bits:
        """(2 tests, n): who passes each test, then who does not."""
        return np.ascontiguousarray(np.concatenate([self.tests, 1 - self.tests], axis=1).T)

    @cached_property
    def _right(self) -> Bits:
        return np.eye(self.classes, dtype=np.float32)[self.labels]

    @cached_property
    def _right_and_passed(self) -> Bits:
        both = self.tests[:, :, None] * self._right[:, None, :]
        return both.reshape(len(self.tests), -1)

    @cached_property
    def _powers(self) -> Values:
        return np.asarray(np.exp(-self.epsilon * np.arange(len(self.tests) + 1)))

    def _answers(self, counts: NDArray[np.int64]) -> Values:
        """Weight of each answer to records of which so many have each label."""
        return np.asarray(self._powers[counts.sum(axis=-1, keepdims=True) - counts] / self.classes)

    def _counts(self, among: Bits) -> NDArray[np.int64]:
        return np.asarray((among @ self._right).astype(np.int64))

    def _last(self, among: Bits) -> tuple[Values, Values]:
        """Weights of an answer and of each test with two answers, for sets of records."""
        whole = self._counts(among)
        inside = (among @ self._right_and_passed).astype(np.int64).reshape(len(among), -1, self.classes)
        outside = whole[:, None] - inside
        tested = self._answers(inside).sum(axis=-1) * self._answers(outside).sum(axis=-1)
        return self._answers(whole).sum(axis=-1), tested

    def _sum(self, answer: Values, tested: Values) -> Values:
        return np.asarray((1 - SPLITTING) * answer + SPLITTING * tested.mean(axis=-1))

    @cached_property
    def sums(self) -> list[Values]:
        """Of all trees that may follow once so many tests were passed or not (an axis each): entry k after k tests."""
        sides, number = self.sides, len(self.sides)
        deepest = np.zeros((number,) * (self.depth - 1))
        for path in itertools.combinations_with_replacement(range(number), self.depth - 2):
            first = path[-1] if path else 0
            among = sides[first:] * np.prod(sides[list(path)], axis=0)
            found = self._sum(*self._last(among))
            places: list[Any] = [*path, np.arange(first, number)]
            for order in itertools.permutations(places):
                deepest[order] = found
        tables = [deepest]
        for k in range(self.depth - 2, -1, -1):
            paths = itertools.product(range(number), repeat=k)
            among = np.array([np.prod(sides[list(path)], axis=0) for path in paths])
            answer = self._answers(self._counts(among)).sum(axis=-1).reshape((number,) * k)
            tables.insert(0, self._sum(answer, self._tested(tables[0])))
        return tables

    def _tested(self, following: Values) -> Values:
        half = self.tests.shape[1]
        return np.asarray(following[..., :half] * following[..., half:])

    def draw(self, drawn: np.random.Generator) -> Tree:
        """One tree."""
        return self._draw(drawn, (), np.ones(len(self.tests), np.float32))

    def _draw(self, drawn: np.random.Generator, path: tuple[int, ...], among: Bits) -> Tree:
        half, answers = self.tests.shape[1], self._answers(self._counts(among))
        if len(path) < self.depth:
            if len(path) == self.depth - 1:
                tested = self._last(among[None])[1][0]
            else:
                tested = self._tested(self.sums[len(path) + 1][path])
            weights = np.append(SPLITTING * tested / half, (1 - SPLITTING) * answers.sum())
            test = int(drawn.choice(half + 1, p=weights / weights.sum()))
            if test < half:
                yes, no = (
                    self._draw(drawn, (*path, side), among * self.sides[side]) for side in (test, half + test)
                )
                return test, yes, no
        return int(drawn.choice(self.classes, p=answers / answers.sum()))


def answer(tree: Tree, tests: Bits) -> Labels:
    """Of each record."""
    if isinstance(tree, int):
        return np.full(len(tests), tree)
    test, yes, no = tree
    return np.where(tests[:, test] > 0, answer(yes, tests), answer(no, tests))


def accuracies(x: Values, y: Labels, epsilon: float) -> list[float]:
    """Of so many draws of trees, each a mean over ten folds."""
    tests, order = passed(x), np.random.default_rng(0).permutation(len(y))
    right: list[list[float]] = []
    for fold in range(TENTH):
        held, kept = order[fold::TENTH], np.delete(order, np.s_[fold::TENTH])
        trees = Trees(tests[kept], y[kept], int(y.max()) + 1, epsilon)
        drawn = np.random.default_rng(fold)
        right.append([float(np.mean(answer(trees.draw(drawn), tests[held]) == y[held])) for _ in range(OWN)])
    return [statistics.fmean(one) for one in zip(*right, strict=True)]


def measure() -> list[dict[str, Any]]:
    """Both tables at each epsilon."""
    found = []
    for dataset in TABLES:
        table = small_tables.load(dataset)
        for epsilon in EPSILONS:
            right = accuracies(table.x, table.y.astype(np.int64), epsilon)
            error = statistics.stdev(right) / len(right) ** 0.5
            found.append(
                {
                    "dataset": dataset,
                    "epsilon": epsilon,
                    "accuracy": statistics.fmean(right),
                    "error": error,
                    "draws": len(right),
                }
            )
            print(found[-1], flush=True)
    return found


def told_table(found: list[dict[str, Any]]) -> str:
    """The table of docs/proofs/small-tables.md."""
    lines = ["| a tree drawn by the exponential mechanism: epsilon | 0.1 | 0.5 | 1 |", "|---|---|---|---|"]
    for dataset in TABLES:
        own = [row for row in found if row["dataset"] == dataset]
        cells = [f"{100 * row['accuracy']:.1f} ± {100 * row['error']:.1f}" for row in own]
        lines.append(f"| {dataset} | " + " | ".join(cells) + " |")
    return "\n".join([MARKS[0], *lines, MARKS[1]])


def main() -> None:
    """Measure, and write the page's table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", action="store_true", help="only write the page's table")
    if not parser.parse_args().page:
        with replacing(RESULTS) as fresh:
            fresh.write_text(json.dumps(measure(), indent=1) + "\n")
    small_tables.write_between(PAGE, MARKS, told_table(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
