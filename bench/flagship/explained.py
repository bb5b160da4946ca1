"""How far the relevance that a release tells for nothing has the order of the non-private one.

python -m bench.flagship.explained [DATASET ...]     results go to bench/results/explained.json

Both go through the same stages; the non-private one with an epsilon at which noise is nothing. The order is
compared input by input, over all classes. Tables of KEEL are released in memory (bench/flagship/adaptive.py).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results/explained.json"
DATASETS = ("wdbc", "dermatology", "usps", "texture")
EPSILONS, KEYS, NO_NOISE = (0.5, 1.0), 5, 200.0


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("datasets", nargs="*", default=DATASETS)
    for dataset in parser.parse_args().datasets:
        with tempfile.TemporaryDirectory() as folder:
            rows = measure(Path(folder), dataset)
        known = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
        kept = [row for row in known if row["dataset"] != dataset]
        RESULTS.write_text(json.dumps([*kept, *rows], indent=1) + "\n")


def measure(folder: Path, dataset: str) -> list[dict[str, object]]:
    """One data set at each epsilon."""
    from scipy.stats import spearmanr

    from bench.flagship.adaptive import from_keel

    overall = _in_memory(dataset) if from_keel(dataset) else _pipeline(folder, dataset)
    without = overall(NO_NOISE, 0)
    rows = []
    for epsilon in EPSILONS:
        found = [float(spearmanr(without, overall(epsilon, key + 1)).statistic) for key in range(KEYS)]
        rows.append(
            {
                "dataset": dataset,
                "epsilon": epsilon,
                "keys": KEYS,
                "rank_correlation": statistics.fmean(found),
                "deviation": statistics.stdev(found),
            }
        )
        print(rows[-1], flush=True)
    return rows


def _pipeline(folder: Path, dataset: str) -> Callable[[float, int], object]:
    """Relevance at an epsilon, with a noise key, through the stages."""
    from airlock.models.explained import read
    from airlock.models.features.choice import MECHANISMS
    from bench.flagship.pipeline import Pipeline

    os.environ["AIRLOCK_HOME"] = str(folder / "home")
    pipeline = Pipeline(folder, dataset)
    pipeline.seal(pipeline.params())

    def overall(epsilon: float, key: int) -> object:
        # What `auto` is, by name.
        name = MECHANISMS[pipeline.facts.kind]
        pipeline.run(pipeline.params(release={"mechanism": name, "epsilon": epsilon}), key)
        return read(pipeline.workspace / "data/model/relevance.parquet").overall

    return overall


def _in_memory(dataset: str) -> Callable[[float, int], object]:
    """The same of a table of KEEL, without files; four fifths of its records."""
    from airlock.models.features.choice import settle
    from airlock.params import Params
    from airlock.records.encoding import encoded_columns
    from bench import keel
    from bench.flagship import adaptive
    from stages.mechanisms import mechanism
    from stages.open.explanation import explanation

    task, columns = next(adaptive.load(dataset)), encoded_columns(keel.load(dataset).schema)

    def overall(epsilon: float, key: int) -> object:
        release = {"mechanism": "auto", "epsilon": epsilon}
        asked = Params.model_validate({"release": release, "relevance": {"mode": "off"}})
        params = settle(asked, task.facts)
        made, tensors = adaptive.release_of(task, params, f"explained {key}")
        model = mechanism(made.mechanism, "open").train(params.train, made, tensors).model
        found = explanation(model, params.train, made, tensors, columns)
        assert found is not None
        return found.overall

    return overall


if __name__ == "__main__":
    main()
