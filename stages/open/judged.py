"""What the private evaluation said, as a metric that DVC shows: accuracy with its interval, and further
measures where they were asked for; of a number, R^2 and errors.

It sees noisy sums and nothing else.
"""

from __future__ import annotations

import json

from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.models.numbers import of_noisy_sums
from airlock.privacy.intervals import noisy_share
from airlock.storage import write_json

EVALUATION, METRICS = "data/released/evaluation", "data/metrics/private.json"


def main(room: Room) -> None:
    """Write data/metrics/private.json."""
    folder = room.path(EVALUATION)
    made = manifest.load(folder)
    figures = json.loads((folder / "evaluation.json").read_text())
    records = int(figures["records"])
    if "errors" in figures:
        private = {**of_noisy_sums(figures), "records": records, "epsilon": made.proven.epsilon}
        write_json(room.path(METRICS), {"private": private})
        return
    accuracy = float(figures["accuracy"])
    low, high = noisy_share(accuracy, records, float(figures["noise_of_accuracy"]))
    private = {
        "accuracy": accuracy,
        "low": low,
        "high": high,
        "records": records,
        "epsilon": made.proven.epsilon,
        **(figures.get("measures") or {}),
    }
    write_json(room.path(METRICS), {"private": private})
