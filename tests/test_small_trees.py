"""The trial with trees of bench/papers/small_trees.py, against all trees written out one by one."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import numpy as np
import pytest

from bench.papers import small_tables, small_trees
from bench.papers.small_trees import SPLITTING, Tree, Trees

DRAWN = np.random.default_rng(0)
TESTS = DRAWN.integers(0, 2, (14, 2)).astype(np.float32)
LABELS = (TESTS[:, 0] + (DRAWN.random(14) < 0.2)).astype(np.int64) % 2


def every_tree(depth: int) -> Iterator[Tree]:
    yield from (0, 1)
    if depth:
        below = list(every_tree(depth - 1))
        yield from itertools.product((0, 1), below, below)


def prior(tree: Tree, depth: int) -> float:
    """Chance of a tree before there is a record: two tests, two labels."""
    if isinstance(tree, int):
        return (1 - SPLITTING if depth else 1) / 2
    return SPLITTING / 2 * prior(tree[1], depth - 1) * prior(tree[2], depth - 1)


def decisions(tree: Tree, depth: int) -> Iterator[int]:
    """In the order in which they are drawn; 2 is no further test."""
    if isinstance(tree, int):
        yield from ([2] if depth else [])
        yield tree
    else:
        yield tree[0]
        for side in tree[1:]:
            yield from decisions(side, depth - 1)


class Followed:
    """A generator that draws what it is told, and multiplies the chances of that."""

    def __init__(self, tree: Tree, depth: int) -> None:
        self.next, self.chance = decisions(tree, depth), 1.0

    def choice(self, number: int, p: np.ndarray) -> int:
        found = next(self.next)
        assert number == len(p)
        self.chance *= p[found]
        return found


def chances(tests: np.ndarray, labels: np.ndarray, epsilon: float, depth: int, of: list[Tree]) -> np.ndarray:
    """Of these trees, as the code draws them."""
    trees, found = Trees(tests, labels, 2, epsilon, depth), []
    for tree in of:
        follow = Followed(tree, depth)
        assert trees.draw(follow) == tree  # type: ignore[arg-type]
        found.append(follow.chance)
    return np.array(found)


@pytest.mark.parametrize(("depth", "epsilon", "every"), [(2, 0.1, 1), (2, 1.5, 1), (3, 0.7, 97)])
def test_a_tree_is_drawn_by_its_prior_and_its_errors(depth: int, epsilon: float, every: int) -> None:
    """Of the 81,610 trees of depth three every 97th is drawn; all are weighed."""
    trees = list(every_tree(depth))
    priors = np.array([prior(tree, depth) for tree in trees])
    wrong = np.array([np.sum(small_trees.answer(tree, TESTS) != LABELS) for tree in trees])
    weights = priors * np.exp(-epsilon * wrong)
    assert priors.sum() == pytest.approx(1)
    assert Trees(TESTS, LABELS, 2, epsilon, depth).sums[0] == pytest.approx(weights.sum())
    drawn = chances(TESTS, LABELS, epsilon, depth, trees[::every])
    assert drawn == pytest.approx(weights[::every] / weights.sum())


def test_no_null_record_changes_a_trees_chance_by_more_than_it_is_priced() -> None:
    epsilon, most = 0.8, 0.0
    trees = list(every_tree(2))
    whole = chances(TESTS, LABELS, epsilon, 2, trees)
    for null in range(len(LABELS)):
        without = chances(np.delete(TESTS, null, 0), np.delete(LABELS, null), epsilon, 2, trees)
        most = max(most, float(np.abs(np.log(without / whole)).max()))
    assert epsilon / 2 < most <= epsilon + 1e-9


def test_the_page_has_what_was_measured() -> None:
    found = json.loads(small_trees.RESULTS.read_text())
    assert small_trees.told_table(found) in small_trees.PAGE.read_text()
    # A part of the same command: one fold less deep is no better than all of it.
    row = next(one for one in found if (one["dataset"], one["epsilon"]) == ("dermatology", 1.0))
    table = small_tables.load("dermatology")
    tests, y = small_trees.passed(table.x), table.y.astype(np.int64)
    order = np.random.default_rng(0).permutation(len(y))
    held, kept = order[::10], np.delete(order, np.s_[::10])
    shallow = Trees(tests[kept], y[kept], 6, 1.0, 3)
    drawn = np.random.default_rng(1)
    right = [np.mean(small_trees.answer(shallow.draw(drawn), tests[held]) == y[held]) for _ in range(40)]
    assert 0.7 < np.mean(right) < row["accuracy"] + 5 * row["error"]
