"""How accurate a private learner can be at most on WDBC's and Dermatology's own records, on average over linear rules
that might have given them their labels: docs/proofs/small-tables.md#rules.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.small_tables            about four minutes of a core
    python -m bench.papers.small_tables --page                                      only the tables of that page

A rule gives a record the label of the largest of M linear functions of its columns. A family is a law of rules:
standard normal numbers, plus `told` times the rule that fits the real labels best, made as large as they are. The
columns have mean 0 and deviation 1 and are taken as they are (`columns`) or made uncorrelated (`directions`). The
learner knows all records, the test records and the law; only labels are private. A rule is mirrored along the record,
or along one that most other records hardly notice (RIDGES); which of them, draws of other rules decide. Written to
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
from numpy.typing import NDArray

from airlock.compare import ceiling, headline
from airlock.datasets import catalog, conversion, sources
from airlock.files import replacing
from airlock.privacy.gaussian import mu_at
from airlock.records.encoding import encode
from airlock.records.schema_file import load_schema
from bench import keel

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench/results" / ceiling.RULES
PAGE = ROOT / "docs/proofs/small-tables.md"
TABLES, EPSILONS, DELTA = ("wdbc", "dermatology"), (0.1, 0.5, 1.0), 1e-5
GEOMETRIES, TOLD = ("directions", "columns"), (0.0, 0.5, 1.0, 2.0)
DRAWS, CHOOSING, LEARNT, OWN, FOLDS, TENTH = 400, 40, 40, 20, 3, 10
RIDGES = (math.inf, 3.0, 1.0, 0.3, 0.1, 0.03)
"""What is added to the records' second moments before a record is divided by them; inf leaves it as it is."""
PENALTIES = (1.0, 100.0)
SHARE = 0.2
"""Of the squared budget, for centring records that a class's sum is made of."""
Values = NDArray[np.float64]
Labels = NDArray[np.int64]


def load(dataset: str) -> keel.Table:
    """The records, encoded by the schema's public bounds."""
    schema, known = load_schema(ROOT / f"data/schemas/{dataset}.yaml"), catalog.dataset(dataset)
    with sources.find(known, ROOT) as (folder, _):
        batches = list(conversion.READERS[known.format](schema, known.files, folder))
    records = pa.Table.from_batches(batches)
    encoded = encode(records, schema)
    return keel.Table(schema, records, encoded.x, encoded.y)


def placed(x: Values, geometry: str) -> Values:
    """Columns of mean 0 and deviation 1, uncorrelated if asked for, and a constant one."""
    varied = x[:, x.std(axis=0) > 1e-9]
    scaled = (varied - varied.mean(axis=0)) / varied.std(axis=0)
    if geometry == "directions":
        turned, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
        scaled = turned[:, sizes > 1e-9 * sizes[0]] * np.sqrt(len(scaled))
    return np.column_stack([scaled, np.ones(len(scaled))])


def real_rule(x: Values, y: Labels) -> Values:
    """A row a label: logistic regression on all records, of mean square 1."""
    from sklearn.linear_model import LogisticRegression

    found = LogisticRegression(max_iter=10_000, fit_intercept=False).fit(x, y).coef_
    rule: Values = found if len(found) > 1 else np.concatenate([-found, found])
    return np.asarray(rule / np.sqrt(np.mean(rule**2)))


def directions(x: Values, ridge: float) -> Values:
    """Along which rules are mirrored, for each record: the shorter its products with the others are, the fewer of
    them have another label afterwards.
    """
    if math.isinf(ridge):
        return x
    return np.asarray(np.linalg.solve(x.T @ x / len(x) + ridge * np.eye(x.shape[1]), x.T).T)


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


def bounds(x: Values, told: Values) -> list[dict[str, Any]]:
    """Of one law, with standard errors, each along the direction that some other rules have the lowest bound for."""
    tried = {ridge: errors(x, told, CHOOSING, ridge, seed=1) for ridge in RIDGES}
    best = {key: max(RIDGES, key=lambda ridge: tried[ridge][key].mean()) for key in tried[math.inf]}
    counted = {ridge: errors(x, told, DRAWS, ridge, seed=0) for ridge in set(best.values())}
    found = []
    for epsilon in EPSILONS:
        row: dict[str, Any] = {"epsilon": epsilon}
        for name in LEARNERS:
            ridge = best[epsilon, name]
            least = counted[ridge][epsilon, name]
            row |= {
                name: 1 - float(least.mean()),
                f"{name}_error": float(least.std(ddof=1)) / DRAWS**0.5,
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
        "bounds": bounds(x, mean),
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


def learners(x: Values, y: Labels) -> dict[str, float]:
    """Accuracy without privacy on the real labels, mean of ten folds drawn three times; scikit-learn's defaults."""
    from sklearn import discriminant_analysis, ensemble, linear_model, neighbors, neural_network, svm
    from sklearn.model_selection import KFold, cross_val_score

    made: dict[str, Any] = {
        f"logistic regression, C = {penalty:g}": linear_model.LogisticRegression(C=penalty, max_iter=10_000)
        for penalty in PENALTIES
    }
    made |= {
        "linear discriminant": discriminant_analysis.LinearDiscriminantAnalysis(),
        "support vectors": svm.SVC(),
        "random forest": ensemble.RandomForestClassifier(random_state=0),
        "extra trees": ensemble.ExtraTreesClassifier(random_state=0),
        "boosting": ensemble.GradientBoostingClassifier(random_state=0),
        "nearest neighbours": neighbors.KNeighborsClassifier(),
        "perceptron": neural_network.MLPClassifier(max_iter=2000, random_state=0),
    }
    folds = [KFold(TENTH, shuffle=True, random_state=seed) for seed in range(FOLDS)]
    return {
        name: float(np.mean([cross_val_score(one, x, y, cv=fold) for fold in folds]))
        for name, one in made.items()
    }


def own(table: keel.Table, geometry: str, told: float) -> list[dict[str, float]]:
    """`coefficients-iterated` on the labels of a family, records and bounds as in the schema: means over draws."""
    from bench.tables_beside import airlock

    x, y = placed(table.x, geometry), table.y.astype(np.int64)
    drawn = [labels for _, _, labels in pairs(x, told * real_rule(x, y), OWN)]
    order, found = np.random.default_rng(2), []
    splits = [order.permutation(len(x)) for _ in drawn]
    for epsilon in EPSILONS:
        right = []
        for number, (labels, split) in enumerate(zip(drawn, splits, strict=True)):
            held, kept = split[: len(x) // TENTH], split[len(x) // TENTH :]
            given = keel.Table(table.schema, table.records, table.x, labels.astype(np.int32))
            scores, _ = airlock(given, kept, held, epsilon, "coefficients-iterated", number)
            right.append(float(np.mean(scores.argmax(axis=1) == labels[held])))
        deviation = statistics.stdev(right) / len(right) ** 0.5
        found.append({"epsilon": epsilon, "accuracy": statistics.fmean(right), "error": deviation})
    return found


def nearest(x: Values, y: Labels, mu: float, share: float, drawn: np.random.Generator) -> Iterator[float]:
    """Accuracy on each of ten folds of the simplest Gaussian learner: a noisy sum of a class's records of length 1, and
    a record has the label of the sum that it has the smallest angle to.

    Records are centred first: by a noisy sum that takes `share` of mu squared, and with 0 by the exact mean of all of
    them, which is not private.
    """
    order, middle = drawn.permutation(len(x)), np.full(x.shape[1], 0.5)
    for fold in range(TENTH):
        test, train = order[fold::TENTH], np.delete(order, np.s_[fold::TENTH])
        mean = x.mean(axis=0)
        if share:
            noise = drawn.normal(0, np.linalg.norm(middle) / (mu * share**0.5), len(middle))
            mean = np.clip(middle + ((x[train] - middle).sum(axis=0) + noise) / len(train), 0, 1)
        placed = (x - mean) / np.linalg.norm(x - mean, axis=1, keepdims=True)
        sums = np.eye(y.max() + 1)[y[train]].T @ placed[train]
        sums += drawn.normal(0, 1 / (mu * (1 - share) ** 0.5), sums.shape)
        scores = placed[test] @ (sums / np.linalg.norm(sums, axis=1, keepdims=True)).T
        yield float(np.mean(scores.argmax(axis=1) == y[test]))


def nearest_rows(table: keel.Table) -> list[dict[str, Any]]:
    """Of one table: means over draws of folds and noise, and standard errors."""
    found = []
    for share in (0.0, SHARE):
        for epsilon in EPSILONS:
            mu, y = mu_at(epsilon, DELTA), table.y.astype(np.int64)
            drawn = [np.random.default_rng(seed) for seed in range(OWN)]
            right = [statistics.fmean(nearest(table.x, y, mu, share, one)) for one in drawn]
            error = statistics.stdev(right) / OWN**0.5
            found.append(
                {"share": share, "epsilon": epsilon, "accuracy": statistics.fmean(right), "error": error}
            )
    return found


def measure() -> dict[str, Any]:
    """Everything, table by table."""
    families, real, sums = [], {}, {}
    for dataset in TABLES:
        table = load(dataset)
        y = table.y.astype(np.int64)
        real[dataset], sums[dataset] = learners(placed(table.x, "columns")[:, :-1], y), nearest_rows(table)
        rows = []
        for geometry in GEOMETRIES:
            for told in TOLD:
                rows.append(family(table, geometry, told))
                print({name: value for name, value in rows[-1].items() if name != "bounds"}, flush=True)
        plain = max(value for name, value in real[dataset].items() if name.startswith("logistic"))
        easy = plain - headline.WITHIN
        named = min((row for row in rows if row["without_privacy"] >= easy), key=_lowest)
        named |= {"named": True, "own": own(table, named["geometry"], named["told"])}
        families += rows
    return {"families": families, "real": real, "sums": sums}


def _lowest(row: dict[str, Any]) -> float:
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
    lines += ["", "| on the labels of the bold families: epsilon | 0.1 | 0.5 | 1 |", "|---|---|---|---|"]
    for row in found["families"]:
        if row["named"]:
            reached = [f"{100 * one['accuracy']:.1f} ± {100 * one['error']:.1f}" for one in row["own"]]
            most = [f"{100 * one['gaussian']:.1f}" for one in row["bounds"]]
            lines.append(f"| {row['dataset']}: any Gaussian learner, at most | " + " | ".join(most) + " |")
            lines.append(
                f"| {row['dataset']}: `coefficients-iterated`, proven | " + " | ".join(reached) + " |"
            )
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


def write_page(found: dict[str, Any]) -> None:
    """Put them in their place."""
    before, rest = PAGE.read_text().split(MARKS[0])
    with replacing(PAGE) as fresh:
        fresh.write_text(before + told_tables(found) + rest.split(MARKS[1])[1])


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
    write_page(json.loads(RESULTS.read_text()))


if __name__ == "__main__":
    main()
