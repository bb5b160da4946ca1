"""What learns on WDBC and Dermatology: without privacy, and as Gaussian mechanisms.

For bench.papers.small_tables and small_kinds, which bound what any private learner reaches there.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.privacy.gaussian import mu_at
from bench import keel

EPSILONS, DELTA = (0.1, 0.5, 1.0), 1e-5
OWN, FOLDS, TENTH = 20, 3, 10
"""Draws of noise; draws of folds; folds."""
PENALTIES = (1.0, 100.0)
SHARE = 0.2
"""Of the squared budget, for centring records that a class's sum is made of."""
Values = NDArray[np.float64]
Labels = NDArray[np.int64]


def made_learners() -> dict[str, Any]:
    """Without privacy, with scikit-learn's defaults."""
    from sklearn import discriminant_analysis, ensemble, linear_model, neighbors, neural_network, svm

    made: dict[str, Any] = {
        f"logistic regression, C = {penalty:g}": linear_model.LogisticRegression(C=penalty, max_iter=10_000)
        for penalty in PENALTIES
    }
    return made | {
        "linear discriminant": discriminant_analysis.LinearDiscriminantAnalysis(),
        "support vectors": svm.SVC(),
        "random forest": ensemble.RandomForestClassifier(random_state=0),
        "extra trees": ensemble.ExtraTreesClassifier(random_state=0),
        "boosting": ensemble.GradientBoostingClassifier(random_state=0),
        "nearest neighbours": neighbors.KNeighborsClassifier(),
        "perceptron": neural_network.MLPClassifier(max_iter=2000, random_state=0),
    }


def learners(x: Values, y: Labels) -> dict[str, float]:
    """Accuracy without privacy on the real labels, mean of ten folds drawn three times."""
    from sklearn.model_selection import KFold, cross_val_score

    folds = [KFold(TENTH, shuffle=True, random_state=seed) for seed in range(FOLDS)]
    return {
        name: float(np.mean([cross_val_score(one, x, y, cv=fold) for fold in folds]))
        for name, one in made_learners().items()
    }


def own(table: keel.Table, drawn: list[Labels]) -> list[dict[str, float]]:
    """`coefficients-iterated` on the labels of a family, records and bounds as in the schema: means over draws."""
    from bench.tables_beside import airlock

    order, found = np.random.default_rng(2), []
    splits = [order.permutation(len(table.x)) for _ in drawn]
    for epsilon in EPSILONS:
        right = []
        for number, (labels, split) in enumerate(zip(drawn, splits, strict=True)):
            held, kept = split[: len(split) // TENTH], split[len(split) // TENTH :]
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
