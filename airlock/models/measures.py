"""What people read beside accuracy: how a classifier does on rare classes, at other thresholds, and whether its
probabilities can be believed. From scores and actual classes alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.softmax import softmax

BINS = 15
"""Of confidence, for the expected calibration error (Guo et al. 2017)."""
Probabilities = NDArray[np.float64]
Classes = NDArray[np.int64]


def measures(scores: NDArray[np.float64], actual: Classes) -> dict[str, Any]:
    """Balanced accuracy, F1, AUC, Brier score and calibration error; None where there is nothing to measure."""
    if not len(actual):
        return dict.fromkeys(("balanced_accuracy", "f1", "auc", "brier", "calibration_error"))
    probabilities = softmax(scores)
    return {
        **of_confusion(confuse(actual, scores.argmax(axis=1), scores.shape[1])),
        "auc": auc(probabilities, actual),
        "brier": brier(probabilities, actual),
        "calibration_error": calibration_error(probabilities, actual),
    }


def confuse(actual: Classes, predicted: Classes, classes: int) -> NDArray[np.int64]:
    """Counts of (actual, predicted)."""
    confusion = np.zeros((classes, classes), np.int64)
    np.add.at(confusion, (actual, predicted), 1)
    return confusion


def of_confusion(confusion: NDArray[Any]) -> dict[str, Any]:
    """Balanced accuracy (mean recall) and F1 (mean over classes), over the classes that occur."""
    right, support, answered = np.diagonal(confusion), confusion.sum(axis=1), confusion.sum(axis=0)
    there = support > 0
    if not there.any():
        return {"balanced_accuracy": None, "f1": None}
    recall = right[there] / support[there]
    f1 = 2 * right[there] / (support[there] + answered[there])
    return {"balanced_accuracy": float(recall.mean()), "f1": float(f1.mean())}


def auc(probabilities: Probabilities, actual: Classes) -> float | None:
    """Area under the curve of each class against the rest, ties counted half; the mean over classes that can be
    told from others. Of two classes, both have the same.
    """
    areas = []
    for one in range(probabilities.shape[1]):
        of_class = actual == one
        positives, negatives = int(of_class.sum()), int((~of_class).sum())
        if positives and negatives:
            ranks = _ranks(probabilities[:, one])
            below = ranks[of_class].sum() - positives * (positives + 1) / 2
            areas.append(below / (positives * negatives))
    return float(np.mean(areas)) if areas else None


def auc_of_histogram(counts: NDArray[Any]) -> float | None:
    """The same for one class, from counts of scores by bin, ascending: a row for the rest, a row for the class."""
    rest, own = (np.maximum(row, 0.0) for row in np.asarray(counts, np.float64))
    if not rest.sum() or not own.sum():
        return None
    below = np.concatenate([[0.0], np.cumsum(rest)[:-1]])
    return float(((below + rest / 2) * own).sum() / (rest.sum() * own.sum()))


def brier(probabilities: Probabilities, actual: Classes) -> float:
    """Mean squared distance to the actual class, summed over classes: 0 is sure and right, 2 sure and wrong."""
    gap = probabilities.copy()
    gap[np.arange(len(actual)), actual] -= 1.0
    return float((gap * gap).sum(axis=1).mean())


def calibration_error(probabilities: Probabilities, actual: Classes) -> float:
    """How far confidence and accuracy are apart, in bins of confidence, weighted by records."""
    confidence = probabilities.max(axis=1)
    right = probabilities.argmax(axis=1) == actual
    place = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(place, weights=right - confidence, minlength=BINS)
    return float(np.abs(gaps).sum() / len(actual))


def _ranks(values: Probabilities) -> NDArray[np.float64]:
    """From 1, the mean rank where values are equal."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.searchsorted(ordered, ordered, side="left")
    behind = np.searchsorted(ordered, ordered, side="right")
    ranks = np.empty(len(values))
    ranks[order] = (first + behind + 1) / 2
    return ranks
