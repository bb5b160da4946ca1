"""Measures beside accuracy, against scikit-learn's, and what they say where there is nothing to measure."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics

from airlock.models.features.softmax import softmax
from airlock.models.measures import auc, auc_of_histogram, calibration_error, measures


def scored(classes: int, ties: bool = False) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(classes)
    actual = generator.choice(classes, 400, p=np.arange(1, classes + 1) / (classes * (classes + 1) / 2))
    scores = generator.normal(size=(400, classes)) + 1.5 * np.eye(classes)[actual]
    return (np.round(scores) if ties else scores), actual


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("ties", [False, True])
def test_measures_are_those_of_scikit_learn(classes: int, ties: bool) -> None:
    scores, actual = scored(classes, ties)
    probabilities, predicted = softmax(scores), scores.argmax(axis=1)
    found = measures(scores, actual)
    assert found["balanced_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(actual, predicted))
    assert found["f1"] == pytest.approx(metrics.f1_score(actual, predicted, average="macro"))
    areas = [metrics.roc_auc_score(actual == one, probabilities[:, one]) for one in range(classes)]
    assert found["auc"] == pytest.approx(np.mean(areas))
    assert found["brier"] == pytest.approx(
        ((probabilities - np.eye(classes)[actual]) ** 2).sum(axis=1).mean()
    )


def test_a_class_that_does_not_occur_is_left_out() -> None:
    scores, actual = scored(2)
    wider = np.column_stack([scores, np.full(len(scores), -30.0)])
    assert measures(wider, actual)["balanced_accuracy"] == measures(scores, actual)["balanced_accuracy"]
    assert auc(softmax(wider), np.zeros(len(scores), np.int64)) is None


def test_no_records_are_no_measures() -> None:
    assert set(measures(np.zeros((0, 3)), np.zeros(0, np.int64)).values()) == {None}


def test_believable_probabilities_have_no_calibration_error_and_bold_ones_have() -> None:
    generator = np.random.default_rng(1)
    likely = generator.uniform(0.5, 1.0, 20_000)
    probabilities = np.column_stack([likely, 1 - likely])
    actual = (generator.random(20_000) > likely).astype(np.int64)
    assert calibration_error(probabilities, actual) < 0.01
    assert calibration_error(np.tile([1.0, 0.0], (20_000, 1)), actual) == pytest.approx(actual.mean())


def test_a_histogram_of_scores_has_the_area_of_its_records() -> None:
    scores, actual = scored(2)
    share = softmax(scores)[:, 1]
    place = np.minimum((share * 2000).astype(int), 1999)
    counts = np.array([np.bincount(place[actual == one], minlength=2000) for one in (0, 1)])
    assert auc_of_histogram(counts) == pytest.approx(metrics.roc_auc_score(actual, share), abs=1e-3)
    assert auc_of_histogram(np.zeros((2, 5))) is None
