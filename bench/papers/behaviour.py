"""Human behaviour prediction and classification on SIMULATED data (airlock/datasets/simulation.py), as in the
figures of pCDBN (Sec. 4.1).

    python -m bench.papers.behaviour            all cells that are not in bench/results/behaviour.json yet
    python -m bench.papers.behaviour attack     what the best test sees of a unit at its sensitivity bound; and what an
                                                attack on the published mechanism's release finds (some minutes)
    python -m bench.papers.behaviour --tune     the cells on other seeds by which the mechanism's constants were
                                                chosen; nothing is written
    python -m bench.papers.behaviour page       docs/behaviour.md and its pictures from the results

A cell is one task, mechanism, unit, epsilon and number of training days; its figure is the mean over noise
keys. The mechanisms' own code runs on records in memory, without wall and ledger: what is measured is the
mechanism.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.datasets.behaviour import DAILY, Windows
from airlock.inside import manifest
from airlock.inside.manifest import Manifest
from airlock.params import Params
from airlock.records.schema_file import load_schema
from bench.flagship.accuracy import locked
from bench.papers.behaviour_data import ROOT, TASKS, BehaviourData, facts_of, last_days, load
from stages import mechanisms

RESULTS = Path(__file__).parents[1] / "results/behaviour.json"
EPSILONS = (0.1, 0.5, 1.0, 2.0, 8.0)
DAYS = (15, 30, 60, 120, 235)
KEYS = 3
READINGS: dict[str, dict[str, Any]] = {
    "window": {"mechanism": "behaviour", "options": {"rows": "window"}},
    "machine": {"mechanism": "behaviour", "options": {"rows": "machine"}},
    "tabular": {"mechanism": "coefficients", "options": {}},
    "published": {"mechanism": "behaviour-published", "options": {"epochs": 600}},
}
FLAW = (
    "noise is added to the polynomial's public constants, while "
    "raw windows are read without noise in every step"
)
PAPER = {0.1: 0.88, 2.0: 0.92, 8.0: 0.94}
"""Fig. 4 of the paper, classification on the real YesiWell data, epsilon as claimed: another data set and
another guarantee.
"""


def measure(data: BehaviourData, reading: str, unit: str, epsilon: float, key: int) -> tuple[float, float]:
    """Accuracy on the holdout and proven epsilon of one release, trained from."""
    params = Params.model_validate({"release": {"epsilon": epsilon, "unit": unit, **READINGS[reading]}})
    mechanism = mechanisms.Whole(mechanisms.mechanism(params.release.mechanism))
    plan = mechanism.plan(params, data.facts)
    identity = manifest.release_id(plan, data.facts)
    noise = hashlib.sha256(f"bench {key} {identity}".encode()).digest()
    tensors, details = mechanism.make(params, data.facts, data, key=noise, release_id=identity)
    facts = data.facts
    described = {
        "kind": facts.kind,
        "n": facts.n,
        "shape": list(facts.shape),
        "labels": list(facts.labels),
        "schema": facts.schema,
    }
    release = Manifest(
        identity,
        plan.mechanism,
        plan.version,
        plan.parameters,
        plan.proven.unit,
        plan.proven.neighbours,
        None,
        plan.proven,
        plan.passes,
        False,
        "",
        {},
        {"data": described, **details},
    )
    trained = mechanisms.mechanism(plan.mechanism, "open").train(params.train, release, tensors)
    return float((trained.model.predict(data.holdout.x) == data.holdout.y).mean()), plan.proven.epsilon


def cell(
    data: BehaviourData, task: str, reading: str, unit: str, epsilon: float, keys: int
) -> dict[str, Any]:
    """One row of the results."""
    start = time.process_time()
    found = [measure(data, reading, unit, epsilon, key) for key in range(keys)]
    accuracies = [accuracy for accuracy, _ in found]
    return {
        "dataset": TASKS[task],
        "simulated": True,
        "task": task,
        "mechanism": READINGS[reading]["mechanism"],
        "reading": _reading(reading, unit, data.facts.per_user or 0),
        "features": reading,
        "unit": unit,
        "epsilon": epsilon,
        "neighbours": "zero-out",
        **_guarantee(reading, epsilon, max(proven for _, proven in found)),
        "records": data.facts.n,
        "days": data.facts.per_user,
        "keys": keys,
        "options": READINGS[reading]["options"],
        "accuracy_mean": statistics.fmean(accuracies),
        "accuracy_std": statistics.stdev(accuracies) if keys > 1 else 0.0,
        "seconds": round((time.process_time() - start) / keys, 2),
    }


def _reading(reading: str, unit: str, points: int) -> str:
    return f"{reading}, per {unit}, {points} time points"


def _guarantee(reading: str, epsilon: float, proven: float) -> dict[str, Any]:
    if reading == "published":
        epochs = READINGS[reading]["options"]["epochs"]
        return {
            "proven_epsilon": "infinity",
            "claimed": epsilon,
            "passes": None,
            "epochs": epochs,
            "reason": FLAW,
        }
    return {
        "proven_epsilon": proven,
        "delta": 1e-5,
        "passes": {"machine": 3, "window": 2, "tabular": 2}[reading],
    }


def baselines(data: BehaviourData, task: str) -> list[dict[str, Any]]:
    """What needs no privacy to compare with: the most frequent class, the last status, the law itself, and
    logistic regressions.
    """
    held, train = data.windows["holdout"], data.windows["records"]
    majority = int(train.status.mean() > 0.5)
    found = {"majority": float((held.status == majority).mean())}
    if task == "prediction":
        found["last value"] = _last_value(held)
    found["law of the simulation"] = float(((held.probability > 0.5) == held.status).mean())
    slots = data.facts.friends["slots"] if data.facts.friends else 0
    found["not private: window and influence"] = _regression(data, slots)
    found["not private: window alone"] = _regression(data, slots, friends=False)
    common = {
        "dataset": TASKS[task],
        "simulated": True,
        "task": task,
        "records": data.facts.n,
        "days": data.facts.per_user,
    }
    return [{**common, "baseline": name, "accuracy_mean": accuracy} for name, accuracy in found.items()]


def _last_value(held: Windows) -> float:
    """Tomorrow as today: the status of the record before, where there is one."""
    known = {
        (user, point): status for user, point, status in zip(held.users, held.point, held.status, strict=True)
    }
    pairs = [
        (known[user, point - 1], status)
        for (user, point), status in known.items()
        if (user, point - 1) in known
    ]
    return float(np.mean([one == other for one, other in pairs]))


def _regression(data: BehaviourData, slots: int, *, friends: bool = True) -> float:
    """Logistic regression without noise on about 15,000 records; the influence is a mean over friends, as in
    the paper.
    """
    from sklearn.linear_model import LogisticRegression

    def columns(x: NDArray[np.float64]) -> NDArray[np.float64]:
        psi = x[:, -slots:]
        mean = psi.sum(axis=1) / np.maximum((psi > 0).sum(axis=1), 1)
        return np.column_stack([x[:, :-slots], mean]) if friends else x[:, :-slots]

    x, held = columns(data.records.x), columns(data.holdout.x)
    mean, spread = x.mean(axis=0), x.std(axis=0) + 1e-9
    few = slice(None, None, max(1, len(x) // 15_000))
    fitted = LogisticRegression(max_iter=200).fit(((x - mean) / spread)[few], data.records.y[few])
    return float(fitted.score((held - mean) / spread, data.holdout.y))


def wanted(task: str) -> list[dict[str, Any]]:
    """All cells of a task, without their figures."""
    whole, units = (235 if task == "prediction" else 38), ("record", "user")
    epsilons = {"window": EPSILONS, "machine": (1.0, 8.0, 0.1), "tabular": (1.0, 8.0)}
    cells = [
        (reading, unit, epsilon, whole)
        for reading in epsilons
        for unit in units
        for epsilon in epsilons[reading]
    ]
    cells += (
        [("published", "record", epsilon, whole) for epsilon in PAPER] if task == "classification" else []
    )
    if task == "prediction":
        cells += [("window", unit, 1.0, days) for unit in units for days in DAYS[:-1]]
        cells += [("machine", unit, 1.0, days) for unit in units for days in (DAYS[0], DAYS[2])]
    return [
        {"task": task, "features": reading, "unit": unit, "epsilon": epsilon, "days": days}
        for reading, unit, epsilon, days in cells
    ]


def run(keys: int, only: str | None) -> None:
    """Measure what is missing; results are written as they come."""
    if only is None:
        _keep([], attacks())
    for task in TASKS:
        missing = [one for one in wanted(task) if only in (None, one["features"]) and not _known(one)]
        lacks = not _known({"task": task, "baseline": "majority"})
        data = load(task) if missing or lacks else None
        if data and lacks:
            _keep(baselines(data, task))
        for one in missing:
            assert data is not None
            part = last_days(data, one["days"]) if one["days"] < (data.facts.per_user or 0) else data
            row = cell(part, task, one["features"], one["unit"], one["epsilon"], keys)
            print(
                task, row["reading"], one["epsilon"], one["days"], f"{row['accuracy_mean']:.4f}", flush=True
            )
            _keep([row])


def results() -> list[dict[str, Any]]:
    """What was measured so far."""
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text())["runs"] if RESULTS.exists() else []
    return rows


def attack_law(epsilon: float = 1.0, trials: int = 200_000) -> list[dict[str, Any]]:
    """What the best test sees of a user or record at the sensitivity bound, with the release's own noise."""
    from airlock.attack import attack

    found = []
    for unit in ("record", "user"):
        release = {"mechanism": "behaviour", "epsilon": epsilon, "unit": unit}
        settings: dict[str, Any] = {
            "confidence": 0.95,
            "seed": 0,
            "sampler": "auto",
            "tick": lambda done, total: None,
        }
        params, schema = (
            Params.model_validate({"release": release}),
            load_schema(ROOT / f"data/schemas/{DAILY}.yaml"),
        )
        targets = attack.targets_of(
            mechanisms.mechanism(params.release.mechanism), params, facts_of(DAILY, schema, 59_690, 254)
        )
        findings = [attack.attack(target, trials=trials, **settings).to_json() for target in targets]
        found.append(
            {
                "kind": findings[0]["kind"],
                "mechanism": "behaviour",
                "epsilon": epsilon,
                "unit": unit,
                "options": {},
                "noise_factor": 1.0,
                "findings": findings,
            }
        )
    return found


def attack_published(trials: int = 100, confidence: float = 0.95) -> list[dict[str, Any]]:
    """The whole training of `behaviour-published`, model and head, on six made-up windows with and without one."""
    from airlock.attack import attack, end_to_end, neighbours
    from stages import attack_data
    from stages.attack import target_of

    found = []
    for epsilon in PAPER:
        release = {"epsilon": epsilon, **READINGS["published"]}
        params, facts = attack_data.of("release", Params.model_validate({"release": release}))
        pairs = [one for one in neighbours.pairs(facts, "zero-out") if "random corners" in one.name][:1]
        effort = end_to_end.Effort(spread=8, direction=2, choice=8)
        target = target_of("release", params, seed=0, facts=facts, pairs=pairs, effort=effort)
        how: dict[str, Any] = {"seed": 0, "sampler": "numpy", "tick": lambda done, total: None}
        finding = attack.attack(target, trials=trials, confidence=confidence, **how).to_json()
        print("attacked", epsilon, finding["epsilon"], flush=True)
        about = {"kind": "attack", "epsilon": epsilon, "neighbours": "zero-out", "unit": "record"}
        found.append({**about, **READINGS["published"], "noise_factor": 1.0, "findings": [finding]})
    return found


def attacks() -> list[dict[str, Any]]:
    """Both."""
    return [*attack_law(), *attack_published()]


def _known(cell: dict[str, Any]) -> bool:
    return any(all(row.get(name) == value for name, value in cell.items()) for row in results())


def _keep(rows: list[dict[str, Any]], attacks: list[dict[str, Any]] | None = None) -> None:
    """Add rows to the file; several benches may do so at the same time."""
    with locked(RESULTS.parent):
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": [], "attacks": []}
        order = sorted(
            [*known["runs"], *rows],
            key=lambda row: (
                row["task"],
                row.get("features", ""),
                row.get("unit", ""),
                row["days"],
                row.get("epsilon", 0.0),
            ),
        )
        document = {
            "simulated": True,
            "runs": order,
            "attacks": known.get("attacks", []) if attacks is None else attacks,
        }
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")


def tune() -> None:
    """A few cells on two other seeds."""
    for seed in ("airlock behaviour tuning", "airlock behaviour tuning 2"):
        data = load("prediction", seed)
        for reading in ("window", "machine"):
            for unit in ("record", "user"):
                figures = [measure(data, reading, unit, epsilon, 0)[0] for epsilon in (0.5, 1.0, 8.0)]
                print(seed, reading, unit, [round(figure, 4) for figure in figures], flush=True)


def main() -> None:
    """Measure, tune, or write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["run", "attack", "page"], default="run")
    parser.add_argument("--keys", type=int, default=KEYS)
    parser.add_argument("--only", choices=[*READINGS])
    parser.add_argument("--tune", action="store_true")
    asked = parser.parse_args()
    if asked.tune:
        tune()
    elif asked.what == "page":
        from bench.papers.behaviour_page import write

        write()
    elif asked.what == "attack":
        _keep([], attacks())
    else:
        run(asked.keys, asked.only)


if __name__ == "__main__":
    main()
