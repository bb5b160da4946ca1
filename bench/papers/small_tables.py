"""How accurate a private learner can be at most on WDBC's and Dermatology's own records, on average over linear rules
that might have given them their labels: docs/proofs/small-tables.md#rules.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.small_tables            about twenty minutes of a core
    python -m bench.papers.small_tables --page                                      only the tables of that page

A rule gives a record the label of the largest of M linear functions of its columns. A family is a law of rules:
standard normal numbers, plus `told` times the rule that fits the real labels best, made as large as they are. The
columns have mean 0 and deviation 1 and are taken as they are (`columns`), made uncorrelated (`directions`), or that and
a tenth of their squares beside them, so that rules are a little curved (`bent`). The
learner knows all records, the test records and the law; only labels are private. A rule is mirrored along the record,
or along one that most other records hardly notice (RIDGES); which of them, other rules decide. Written to
bench/results/papers/small-tables.json, with what learners without privacy reach on the real labels and on those of
each family. The headline table has the family with the lowest bound of those that are about as easy as the real
table: logistic regression without privacy is within two points of what it reaches there. `coefficients-iterated` is
run on its labels too.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from airlock.compare import ceiling, headline
from airlock.datasets import catalog, conversion, sources
from airlock.files import replacing
from airlock.privacy.gaussian import mu_at
from airlock.records.encoding import encode
from airlock.records.schema_file import load_schema
from bench import keel
from bench.papers import small_learners
from bench.papers.small_learners import DELTA, EPSILONS, OWN, PENALTIES, SHARE, TENTH, Labels, Values

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench/results" / ceiling.RULES
PAGE = ROOT / "docs/proofs/small-tables.md"
TABLES = ("wdbc", "dermatology")
GEOMETRIES, TOLD = ("directions", "columns", "bent"), (0.0, 0.5, 1.0, 2.0)
BEND = 0.1
"""How large the squares of directions are beside them, where rules are bent."""
DRAWS, NAMED, CHOOSING, LEARNT = 400, 10_000, 60, 200
"""Rules: of each family, of one that the headline table has, on which directions are chosen, on which something learns.
"""
RIDGES = (math.inf, 10.0, 3.0, 1.0, 0.3, 0.1, 0.03)
"""How much the length of a direction counts beside what it moves; with inf it is the record itself."""
ROUNDS = 12


def load(dataset: str) -> keel.Table:
    """The records, encoded by the schema's public bounds."""
    schema, known = load_schema(ROOT / f"data/schemas/{dataset}.yaml"), catalog.dataset(dataset)
    with sources.find(known, ROOT) as (folder, _):
        batches = list(conversion.READERS[known.format](schema, known.files, folder))
    records = pa.Table.from_batches(batches)
    encoded = encode(records, schema)
    return keel.Table(schema, records, encoded.x, encoded.y)


def placed(x: Values, geometry: str) -> Values:
    """Columns of mean 0 and deviation 1, uncorrelated and with their squares if asked for, and a constant one."""
    varied = x[:, x.std(axis=0) > 1e-9]
    scaled = (varied - varied.mean(axis=0)) / varied.std(axis=0)
    if geometry != "columns":
        turned, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
        scaled = turned[:, sizes > 1e-9 * sizes[0]] * np.sqrt(len(scaled))
    if geometry == "bent":
        squares = scaled**2 - 1
        scaled = np.column_stack([scaled, BEND * squares / squares.std(axis=0)])
    return np.column_stack([scaled, np.ones(len(scaled))])


def real_rule(x: Values, y: Labels) -> Values:
    """A row a label: logistic regression on all records, of mean square 1."""
    from sklearn.linear_model import LogisticRegression

    found = LogisticRegression(max_iter=10_000, fit_intercept=False).fit(x, y).coef_
    rule: Values = found if len(found) > 1 else np.concatenate([-found, found])
    return np.asarray(rule / np.sqrt(np.mean(rule**2)))


def directions(x: Values, ridge: float) -> Values:
    """Along which rules are mirrored, for each record: of the vectors v whose product with it is 1 the one with the
    least mean of |<v, other>| / |other| plus `ridge` |v|^2. A mirrored rule then gives few others another label.

    The absolute values are descended by weighted squares. Any v is as valid; a better one has a lower bound.
    """
    if math.isinf(ridge):
        return x
    lengths, penalty = np.linalg.norm(x, axis=1), ridge * np.eye(x.shape[1])
    found = np.empty_like(x)
    for place, record in enumerate(x):
        moment = x.T @ x / len(x)
        for _ in range(ROUNDS):
            v = np.linalg.solve(moment + penalty, record)
            v /= v @ record
            weights = 1 / (lengths * np.maximum(np.abs(x @ v), 1e-3))
            weights[place] = 0
            moment = (x.T * weights) @ x / len(x)
        found[place] = v
    return found


def mirrored(
    rule: Values, x: Values, record: int, along: Values, train: Labels, labels: Labels
) -> tuple[int, Values]:
    """The rule in which the record's two largest functions have changed places, moved along one direction: how many
    training records have another label by it, and what was taken from the one function and given to the other.

    That is a reflection, askew unless the direction is the record, of the difference of the two: it is its own inverse
    and keeps volumes, so that the two rules are as likely as the law's densities say.
    """
    scores = x @ rule.T
    second, first = np.argsort(scores[record])[-2:]
    moved = (scores[record, first] - scores[record, second]) / (x[record] @ along) * along
    there = scores[train].copy()
    there[:, first] -= x[train] @ moved
    there[:, second] += x[train] @ moved
    change = np.zeros_like(rule)
    change[first], change[second] = -moved, moved
    return int(np.sum(there.argmax(axis=1) != labels[train])), change


def pairs(
    x: Values, told: Values, draws: int, ridge: float = math.inf, seed: int = 0
) -> Iterator[tuple[Values, Values, Labels]]:
    """For each of so many rules and each test record of a drawn tenth: records that differ by the mirrored rule, the
    logarithm of how much likelier than the rule that one is; and the labels.
    """
    drawn, along = np.random.default_rng(seed), directions(x, ridge)
    for _ in range(draws):
        order = drawn.permutation(len(x))
        test, train = order[: len(x) // TENTH], order[len(x) // TENTH :]
        rule = told + drawn.standard_normal(told.shape)
        labels = np.argmax(x @ rule.T, axis=1)
        differing, odds = np.zeros(len(test)), np.zeros(len(test))
        for place, record in enumerate(test):
            differing[place], change = mirrored(rule, x, record, along[record], train, labels)
            odds[place] = np.sum((rule - told) ** 2 - (rule + change - told) ** 2) / 2
        yield differing, odds, labels


LEARNERS = ("any", "gaussian")


def errors(x: Values, told: Values, draws: int, ridge: float, seed: int) -> dict[tuple[float, str], Values]:
    """Of each drawn rule the least error, by epsilon and learner."""
    found: dict[tuple[float, str], list[float]] = {}
    for differing, odds, _ in pairs(x, told, draws, ridge, seed):
        for epsilon in EPSILONS:
            least = (
                ceiling.least_error(differing, odds, epsilon, DELTA),
                ceiling.least_gaussian_error(differing, odds, mu_at(epsilon, DELTA)),
            )
            for name, one in zip(LEARNERS, least, strict=True):
                found.setdefault((epsilon, name), []).append(float(one.mean()))
    return {key: np.array(ones) for key, ones in found.items()}


def bounds(x: Values, told: Values, draws: int) -> list[dict[str, Any]]:
    """Of one law, with standard errors, each along the direction that some other rules have the lowest bound for."""
    tried = {ridge: errors(x, told, CHOOSING, ridge, seed=1) for ridge in RIDGES}
    best = {key: max(RIDGES, key=lambda ridge: tried[ridge][key].mean()) for key in tried[math.inf]}
    counted = {ridge: errors(x, told, draws, ridge, seed=0) for ridge in set(best.values())}
    found = []
    for epsilon in EPSILONS:
        row: dict[str, Any] = {"epsilon": epsilon}
        for name in LEARNERS:
            ridge = best[epsilon, name]
            least = counted[ridge][epsilon, name]
            row |= {
                name: 1 - float(least.mean()),
                f"{name}_error": float(least.std(ddof=1)) / draws**0.5,
                f"{name}_ridge": None if math.isinf(ridge) else ridge,
            }
        found.append(row)
    return found


def family(table: keel.Table, geometry: str, told: float) -> dict[str, Any]:
    """Bounds of one law of rules, and what learns there without privacy."""
    x, y = placed(table.x, geometry), table.y.astype(np.int64)
    mean = told * real_rule(x, y)
    learnt = [labels for _, _, labels in pairs(x, mean, LEARNT)]
    agreeing = [float(np.mean(labels == y)) for _, _, labels in pairs(x, mean, DRAWS)]
    return {
        "dataset": table.schema.name,
        "geometry": geometry,
        "told": told,
        "agreeing": statistics.fmean(agreeing),
        "without_privacy": logistic(x, learnt),
        "draws": DRAWS,
        "bounds": bounds(x, mean, DRAWS),
        "named": False,
    }


def logistic(x: Values, drawn: list[Labels]) -> float:
    """Mean accuracy on a tenth of logistic regression without privacy, by the better of two penalties."""
    from sklearn.linear_model import LogisticRegression

    order = np.random.default_rng(1)
    splits = [order.permutation(len(x)) for _ in drawn]
    found = []
    for penalty in PENALTIES:
        right = []
        for labels, split in zip(drawn, splits, strict=True):
            test, train = split[: len(x) // TENTH], split[len(x) // TENTH :]
            if len(set(labels[train])) > 1:
                made = LogisticRegression(C=penalty, max_iter=10_000).fit(x[train], labels[train])
                right.append(float(made.score(x[test], labels[test])))
        found.append(statistics.fmean(right))
    return max(found)


def measure() -> dict[str, Any]:
    """Everything, table by table."""
    families, real, sums = [], {}, {}
    for dataset in TABLES:
        table = load(dataset)
        y = table.y.astype(np.int64)
        real[dataset], sums[dataset] = (
            small_learners.learners(placed(table.x, "columns")[:, :-1], y),
            small_learners.nearest_rows(table),
        )
        rows = []
        for geometry in GEOMETRIES:
            for told in TOLD:
                rows.append(family(table, geometry, told))
                print({name: value for name, value in rows[-1].items() if name != "bounds"}, flush=True)
        plain = max(value for name, value in real[dataset].items() if name.startswith("logistic"))
        easy = plain - headline.WITHIN
        named = min((row for row in rows if row["without_privacy"] >= easy), key=lowest)
        x = placed(table.x, named["geometry"])
        mean = named["told"] * real_rule(x, y)
        drawn = [labels for _, _, labels in pairs(x, mean, OWN)]
        named |= {
            "named": True,
            "own": small_learners.own(table, drawn),
            "draws": NAMED,
            "bounds": bounds(x, mean, NAMED),
        }
        families += rows
    return {"families": families, "real": real, "sums": sums}


def lowest(row: dict[str, Any]) -> float:
    """How low the bounds of a family are, for Gaussian learners."""
    return statistics.fmean(bound["gaussian"] for bound in row["bounds"])


MARKS = ("<!-- rules -->", "<!-- end of rules -->")


def told_tables(found: dict[str, Any]) -> str:
    """The tables of docs/proofs/small-tables.md."""
    lines = [
        "| records of | columns | told | labels as the real ones | without privacy | any learner: 0.1 | 0.5 | 1 "
        "| any Gaussian one: 0.1 | 0.5 | 1 |",
        "|" + "---|" * 11,
    ]
    for row in found["families"]:
        bounds = [f"{100 * one[name]:.1f}" for name in ("any", "gaussian") for one in row["bounds"]]
        name = f"**{row['dataset']}**" if row["named"] else row["dataset"]
        told = [name, row["geometry"], f"{row['told']:g}"]
        told += [f"{100 * row[one]:.1f}" for one in ("agreeing", "without_privacy")]
        lines.append("| " + " | ".join([*told, *bounds]) + " |")
    lines += ["", *told_own(found)]
    lines += ["", "| without privacy, on the real labels | " + " | ".join(found["real"]) + " |"]
    lines += ["|---|" + "---|" * len(found["real"])]
    for name in next(iter(found["real"].values())):
        cells = [f"{100 * real[name]:.1f}" for real in found["real"].values()]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "| noisy sums of each class, on the real labels: epsilon | 0.1 | 0.5 | 1 |",
        "|---|---|---|---|",
    ]
    for dataset, rows in found["sums"].items():
        for share, centred in ((0.0, "exactly, which is not private"), (SHARE, "privately")):
            own = [row for row in rows if row["share"] == share]
            reached = [f"{100 * row['accuracy']:.1f} ± {100 * row['error']:.1f}" for row in own]
            lines.append(f"| {dataset}, centred {centred} | " + " | ".join(reached) + " |")
    return "\n".join([MARKS[0], *lines, MARKS[1]])


def told_own(found: dict[str, Any]) -> list[str]:
    """What `coefficients-iterated` reaches on the labels of the named families, beside the bound."""
    lines = ["| on the labels of a bold family: epsilon | 0.1 | 0.5 | 1 |", "|---|---|---|---|"]
    for row in found["families"]:
        if "own" in row:
            reached = [f"{100 * one['accuracy']:.1f} ± {100 * one['error']:.1f}" for one in row["own"]]
            most = [f"{100 * one['gaussian']:.1f}" for one in row["bounds"]]
            lines.append(f"| {row['dataset']}: any Gaussian learner, at most | " + " | ".join(most) + " |")
            lines.append(
                f"| {row['dataset']}: `coefficients-iterated`, proven | " + " | ".join(reached) + " |"
            )
    return lines


def write_between(page: Path, marks: tuple[str, str], tables: str) -> None:
    """Put tables in their place."""
    before, rest = page.read_text().split(marks[0])
    with replacing(page) as fresh:
        fresh.write_text(before + tables + rest.split(marks[1])[1])


def main() -> None:
    """Measure, and write the page's tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--page", action="store_true", help="only write the page's tables")
    if not parser.parse_args().page:
        warnings.filterwarnings("ignore", module="sklearn")
        found = measure()
        with replacing(RESULTS) as fresh:
            fresh.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    write_between(PAGE, MARKS, told_tables(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
