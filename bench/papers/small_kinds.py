"""How accurate a private learner can be at most on WDBC's and Dermatology's own records, if they fall into kinds whose
labels it has to learn: docs/proofs/small-tables.md#kinds.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.small_kinds            about five minutes of a core
    python -m bench.papers.small_kinds --page                                      only the tables of that page

Kinds are the table's classes, or so many groups of its records that hierarchical clustering finds (columns have mean 0
and deviation 1). The learner knows all records and their kinds; which label each kind has is drawn evenly. Written to
bench/results/papers/small-kinds.json, with what is reached without privacy: by a learner that is told the kinds, and by
the nearest neighbour's label, which is not. The headline table has for each epsilon the lowest bound of those that are
about as easy as the real table: the nearest neighbour is within two points of the best learner there. Where bounds are
lowest on the whole `coefficients-iterated` is run too.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from airlock.compare import ceiling, headline
from airlock.files import replacing
from airlock.privacy.gaussian import mu_at
from bench import keel
from bench.papers import small_learners, small_tables
from bench.papers.small_learners import DELTA, EPSILONS, OWN, TENTH, Labels, Values
from bench.papers.small_tables import PAGE, ROOT, TABLES

RESULTS = ROOT / "bench/results" / ceiling.KINDS
CLASSES = "classes"
METHODS = ("average", "ward", "complete")
NUMBERS = (6, 8, 10, 12, 14, 16, 18, 20, 22, 25, 28, 30)
LEARNT = 10_000
"""Ways to give kinds labels and to hold out a tenth, on which the nearest neighbour is tried."""
MARKS = ("<!-- kinds -->", "<!-- end of kinds -->")


def groups(x: Values, method: str, number: int) -> Labels:
    """The kind of each record: clusters are joined until there are so many."""
    from scipy.cluster.hierarchy import fcluster, linkage

    return np.asarray(fcluster(linkage(x, method), number, "maxclust") - 1)


def family(table: keel.Table, kinds: Labels, method: str, draws: int = LEARNT) -> dict[str, Any]:
    """Bounds of the labels that kinds may have, and what is reached without privacy."""
    y, sizes = table.y.astype(np.int64), np.bincount(kinds).tolist()
    labels, held = int(y.max()) + 1, len(y) // TENTH
    found = []
    for epsilon in EPSILONS:
        row: dict[str, float] = {"epsilon": epsilon}
        bounds = ceiling.approximate(epsilon, DELTA), ceiling.gaussian(mu_at(epsilon, DELTA))
        for name, bound in zip(small_tables.LEARNERS, bounds, strict=True):
            row[name] = ceiling.ceiling(sizes, labels, bound, held)
        found.append(row)
    agreeing = sum(int(np.bincount(y[kinds == one]).max()) for one in range(len(sizes)))
    return {
        "dataset": table.schema.name,
        "method": method,
        "sizes": sorted(sizes, reverse=True),
        "agreeing": agreeing / len(y),
        "told": ceiling.ceiling(sizes, labels, lambda before, k: 1.0 if k else before, held),
        "without_privacy": nearest(placed(table), kinds, labels, draws),
        "bounds": found,
        "named": False,
    }


def placed(table: keel.Table) -> Values:
    """Columns as they are clustered."""
    return small_tables.placed(table.x, "columns")[:, :-1]


def drawn(kinds: Labels, labels: int, draws: int) -> list[Labels]:
    """So many ways to give kinds labels."""
    seeded = np.random.default_rng(0)
    return [seeded.integers(labels, size=kinds.max() + 1)[kinds] for _ in range(draws)]


def nearest(x: Values, kinds: Labels, labels: int, draws: int) -> float:
    """Mean accuracy on a tenth of the label of the nearest record that is trained on."""
    from scipy.spatial.distance import cdist

    apart, seeded, right = cdist(x, x), np.random.default_rng(1), []
    for given in drawn(kinds, labels, draws):
        order = seeded.permutation(len(x))
        test, train = order[: len(x) // TENTH], order[len(x) // TENTH :]
        right.append(float(np.mean(given[train[apart[np.ix_(test, train)].argmin(axis=1)]] == given[test])))
    return statistics.fmean(right)


def measure() -> dict[str, Any]:
    """Everything, table by table."""
    families = []
    for dataset in TABLES:
        table = small_tables.load(dataset)
        x, y = placed(table), table.y.astype(np.int64)
        rows = [family(table, y, CLASSES)]
        for method in METHODS:
            for number in NUMBERS:
                rows.append(family(table, groups(x, method, number), method))
                print({name: value for name, value in rows[-1].items() if name != "sizes"}, flush=True)
        real = max(small_learners.learners(x, y).values())
        for row in rows:
            row |= {"real": real, "named": row["without_privacy"] >= real - headline.WITHIN}
        least = min((row for row in rows if row["named"]), key=small_tables.lowest)
        kinds = y if least["method"] == CLASSES else groups(x, least["method"], len(least["sizes"]))
        least["own"] = small_learners.own(table, drawn(kinds, int(y.max()) + 1, OWN))
        families += rows
    return {"families": families}


def shown(families: list[dict[str, Any]]) -> Callable[[dict[str, Any]], bool]:
    """Whether a family has a lowest bound that the headline table quotes, or kinds that are the classes."""
    least = ceiling.lowest(families)

    def told(row: dict[str, Any]) -> bool:
        quoted = (
            bound[name] == least[row["dataset"], bound["epsilon"]][place]
            for bound in row["bounds"]
            for place, name in enumerate(small_tables.LEARNERS)
        )
        return row["method"] == CLASSES or (row["named"] and any(quoted))

    return told


def told_tables(found: dict[str, Any]) -> str:
    """The tables of docs/proofs/small-tables.md."""
    lines = [
        "| records of | kinds | records in a kind | a kind's most frequent label | without privacy, told the kinds "
        "| nearest neighbour | any learner: 0.1 | 0.5 | 1 | any Gaussian one: 0.1 | 0.5 | 1 |",
        "|" + "---|" * 12,
    ]
    for row in filter(shown(found["families"]), found["families"]):
        name = f"**{row['dataset']}**" if "own" in row else row["dataset"]
        kinds = f"{len(row['sizes'])}, {row['method']}"
        told = [name, kinds, f"{row['sizes'][-1]} to {row['sizes'][0]}"]
        told += [f"{100 * row[one]:.1f}" for one in ("agreeing", "told", "without_privacy")]
        told += [f"{100 * one[name]:.1f}" for name in small_tables.LEARNERS for one in row["bounds"]]
        lines.append("| " + " | ".join(told) + " |")
    return "\n".join([MARKS[0], *lines, "", *small_tables.told_own(found), MARKS[1]])


def main() -> None:
    """Measure, and write the page's tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", action="store_true", help="only write the page's tables")
    if not parser.parse_args().page:
        found = measure()
        with replacing(RESULTS) as fresh:
            fresh.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    small_tables.write_between(PAGE, MARKS, told_tables(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
