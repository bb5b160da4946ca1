"""The sums behind further measures of a private evaluation: a confusion matrix, histograms of scores, and squared
errors of probabilities (docs/proofs/evaluation.md#measures).

What a record adds is a function of that record and the model: one 1 in the confusion matrix, one 1 in the
histogram of every curve, and an integer from 0 to BRIER. A record without an answer is in no count, and its
probabilities are as wrong as can be.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.softmax import row_sums, softmax
from airlock.models.measures import auc_of_histogram, of_confusion
from airlock.privacy import sensitivity
from airlock.privacy.guarantees import Neighbours
from stages.release.noisy_sums import Priced, Query

BINS = 20
BRIER = 2**15
"""Stands for a squared error of 2, the largest."""
SHARES = {"confusion": 0.5, "scores": 0.4, "brier": 0.1}
Integers = NDArray[np.int64]
Sums = Mapping[str, Integers]


def queries(classes: int, neighbours: Neighbours) -> list[Query]:
    """The noisy sums, each with its share."""
    curves = curves_of(classes)
    reach = {
        "confusion": (sensitivity.histograms(1, neighbours=neighbours), classes * classes),
        "scores": (sensitivity.histograms(curves, neighbours=neighbours), curves * 2 * BINS),
        "brier": (float(BRIER), 1),
    }
    return [
        Query(purpose, 1, reach[purpose][0], "gaussian", reach[purpose][1], share)
        for purpose, share in SHARES.items()
    ]


def curves_of(classes: int) -> int:
    """Each class has a curve against the rest; of two, one is enough."""
    return 1 if classes == 2 else classes


def sums_of(
    scores: NDArray[np.float64], actual: NDArray[np.int64], known: NDArray[np.bool_], classes: int
) -> Sums:
    """The exact sums of a batch. Each row of scores was computed by itself; NaN where there is no answer.

    Nothing is left out before it is summed: the shape of every array is public, and what one record adds is
    computed in its own place, whatever stands in the others. Scores of another width are no answers.
    """
    curves = curves_of(classes)
    confusion = np.zeros((classes, classes), np.int64)
    histograms = np.zeros((curves, 2, BINS), np.int64)
    fitting = scores.shape[1] == classes
    answered = known & np.isfinite(scores).all(axis=1) & fitting
    shown = np.where(answered[:, None], scores, 0.0) if fitting else np.zeros((len(scores), classes))
    shares, guessed, labels = softmax(shown), shown.argmax(axis=1), np.maximum(actual, 0)
    np.add.at(confusion, (labels, guessed), answered.astype(np.int64))
    for curve in range(curves):
        one = classes - 1 if curves == 1 else curve
        place = np.minimum((shares[:, one] * BINS).astype(np.int64), BINS - 1)
        np.add.at(histograms[curve], ((labels == one).astype(np.int64), place), answered.astype(np.int64))
    gap = shares - np.eye(classes)[labels]
    squares = np.floor(np.minimum(row_sums(gap * gap) / 2, 1.0) * BRIER).astype(np.int64)
    brier = np.where(answered, squares, known * np.int64(BRIER))
    return {"confusion": confusion, "scores": histograms, "brier": np.array([brier.sum()], np.int64)}


def figures(
    noisy: Sums, priced: Mapping[str, Priced], records: int, labels: tuple[str, ...]
) -> dict[str, Any]:
    """Accuracy and the further measures, from noisy sums: post-processing."""
    confusion = np.maximum(noisy["confusion"], 0)
    support = confusion.sum(axis=1)
    recall = {
        label: float(confusion[place, place] / support[place]) if support[place] else None
        for place, label in enumerate(labels)
    }
    areas = [area for area in map(auc_of_histogram, noisy["scores"]) if area is not None]
    right = int(np.trace(noisy["confusion"]))
    return {
        "right": right,
        "accuracy": min(1.0, max(0.0, right / records)),
        "noise_of_accuracy": float(np.sqrt(len(labels))) * priced["confusion"].scale / records,
        "measures": {
            **of_confusion(confusion),
            "auc": float(np.mean(areas)) if areas else None,
            "brier": min(2.0, max(0.0, 2 * int(noisy["brier"][0]) / (BRIER * records))),
            "recall": recall,
        },
    }
