"""The other tools of `bench.tables_beside`, each in an environment of its own: diffprivlib needs an
older scikit-learn.

    python bench/tables_peers.py TASK.npz TOOL EPSILON DELTA

Prints one line of JSON. It imports nothing of Airlock.
"""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
import warnings
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm

RATES = (0.01, 0.1)


def main() -> None:
    """Fit one tool on one split."""
    warnings.filterwarnings("ignore")
    task, tool, epsilon, delta = sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
    with np.load(task, allow_pickle=False) as file:
        given = dict(file)
    importlib.import_module({"dp-ebm": "interpret.privacy", "diffprivlib": "diffprivlib.models"}[tool])
    start, worked = time.perf_counter(), time.process_time()
    scores, said = {"dp-ebm": dp_ebm, "diffprivlib": diffprivlib}[tool](given, epsilon, delta)
    said |= {"seconds": time.perf_counter() - start, "cpu_seconds": round(time.process_time() - worked, 3)}
    print(json.dumps({"scores": scores.tolist(), **said}))


def delta_of(mu: float, epsilon: float) -> float:
    """Of a Gaussian with shift mu."""
    return float(norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu))


def part_of(epsilon: float, delta: float, fits: int) -> float:
    """Epsilon of one of so many fits that together are (epsilon, delta)-DP: both sides are Gaussian, so their
    squared shifts add up exactly.
    """
    mu = brentq(lambda shift: delta_of(shift, epsilon) - delta, 1e-6, 200.0) / math.sqrt(fits)
    return float(brentq(lambda found: delta_of(mu, found) - delta, 1e-9, 500.0))


def dp_ebm(given: dict[str, Any], epsilon: float, delta: float) -> tuple[np.ndarray, dict[str, Any]]:
    """DPExplainableBoostingClassifier, one against the rest where classes are many; the learning rate by a
    validation fifth, which costs it nothing here.
    """
    x, y, test = given["raw"], given["y"], given["raw_test"]
    classes, cut = int(given["classes"]), len(given["y"]) * 4 // 5
    how: dict[str, Any] = {"given": given, "epsilon": epsilon, "delta": delta, "classes": classes}
    right = {
        rate: float(np.mean(fit_ebm(x[:cut], y[:cut], x[cut:], rate, **how).argmax(1) == y[cut:]))
        for rate in RATES
    }
    best = max(RATES, key=lambda rate: right[rate])
    start = time.perf_counter()
    scores = fit_ebm(x, y, test, best, **how)
    return scores, {"rate": best, "seconds_fit": time.perf_counter() - start}


def fit_ebm(
    x: np.ndarray,
    y: np.ndarray,
    test: np.ndarray,
    rate: float,
    *,
    given: dict[str, Any],
    epsilon: float,
    delta: float,
    classes: int,
) -> np.ndarray:
    """Scores of the test records."""
    from interpret.privacy import DPExplainableBoostingClassifier

    kinds = ["nominal" if nominal else "continuous" for nominal in given["nominal"]]
    bounds = {
        place: tuple(map(float, pair))
        for place, pair in enumerate(given["bounds"])
        if kinds[place] != "nominal"
    }
    share = epsilon if classes == 2 else part_of(epsilon, delta, classes)
    scores = np.zeros((len(test), classes))
    for label in range(classes) if classes > 2 else [1]:
        wanted = (y == label).astype(int)
        if wanted.min() == wanted.max():
            scores[:, label] = wanted[0]
            continue
        model = DPExplainableBoostingClassifier(
            feature_types=kinds, learning_rate=rate, epsilon=share, delta=delta, privacy_bounds=bounds,
            composition="gdp", n_jobs=1, random_state=None,
        )  # fmt: skip
        model.fit(x, wanted)
        scores[:, label] = model.predict_proba(test)[:, 1]
    return np.c_[1 - scores[:, 1], scores[:, 1]] if classes == 2 else scores


def diffprivlib(given: dict[str, Any], epsilon: float, delta: float) -> tuple[np.ndarray, dict[str, Any]]:
    """Its logistic regression (pure epsilon) on the encoded columns, centred in their bounds; the norm is the
    largest that bounds and one-hot columns allow.
    """
    from diffprivlib.models import LogisticRegression

    classes = int(given["classes"])
    norm_bound = math.sqrt(int(given["columns"])) / 2
    shift = np.where(given["one_hot"], 0.0, 0.5)
    scale = np.where(given["one_hot"], 0.5, 1.0)
    model = LogisticRegression(epsilon=epsilon, data_norm=norm_bound, max_iter=500)
    model.fit((given["x"] - shift) * scale, given["y"])
    found = model.predict_proba((given["x_test"] - shift) * scale)
    scores = np.zeros((len(found), classes))
    scores[:, model.classes_] = found
    return scores, {}


if __name__ == "__main__":
    main()
