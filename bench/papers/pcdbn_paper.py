"""`pcdbn` as its authors' program has it, at the paper's size: 60,000 records, 32 and 64 maps, 2,400 epochs of
what is above them.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.pcdbn paper        the same command again goes on

Rows go to bench/results/pcdbn.json as they come, with accuracy after some epochs (the paper's Fig. 5b).
"""

from __future__ import annotations

import hashlib
import json
import statistics
from pathlib import Path
from typing import Any

from bench.papers.pcdbn import describe, keep, rows, same, settle

POINTS = (1, 5, 10, 25, 50, 100, 200, 300, 600, 900, 1200, 1500, 1800, 2100, 2400)
"""Epochs after which accuracy is told, at the paper's size."""


def paper(epsilon: float, options: dict[str, Any], state: Path, key: int = 0) -> None:
    """The authors' program at the paper's size. A checkpoint stays in `state`: the same command again goes on.

    What was told before an interruption is in the row already; a finished run is not made again.
    """
    from bench.papers.adlm import as_batches, read_mnist
    from stages.release.interactive import Keyed, walk
    from stages.release.papers.dp_sgd import dp_sgd
    from stages.release.papers.pcdbn import pcdbn, program

    train = read_mnist("train")
    asked = {"epsilon": epsilon, "options": {"preset": "authors-code", **options}}
    params, facts = settle(asked, len(train[1]))
    recipe = pcdbn.resolve(params, facts)
    identity = hashlib.sha256(json.dumps([asked, key], sort_keys=True).encode()).hexdigest()
    course = program.Program(
        recipe, facts, dp_sgd.load(as_batches(*train), facts), Keyed(bytes([key] * 32), identity)
    )
    judge = Judge(describe(asked, params, facts), course, *read_mnist("t10k"), key=key)

    def advance(epoch: int, now: dict[str, Any]) -> dict[str, Any]:
        after = course.advance(epoch, now)
        judge(epoch + 1 - course.pretraining)
        return after

    state.mkdir(parents=True, exist_ok=True)
    walk(course.start(), advance, steps=course.epochs, identity=identity, checkpoint=state)


class Judge:
    """Accuracy on the test set after some epochs, and the row so far: by the running statistics of training,
    which is what a model predicts with, and by those of the whole test set, which is what the program does.
    """

    def __init__(self, row: dict[str, Any], course: Any, images: Any, labels: Any, *, key: int) -> None:
        self.row, self.course, self.images, self.labels, self.key = row, course, images, labels, key
        self.seen: Any = None
        known = next((one for one in rows() if same(one, row)), {})
        self.kept = known.get("curves", {}).get(str(key), {"stored": {}, "batch": {}})
        self.others = {name: one for name, one in known.get("curves", {}).items() if name != str(key)}

    def __call__(self, epoch: int) -> None:
        """After so many epochs of fine-tuning (before them it is zero or less)."""
        if epoch < 1 or (epoch not in POINTS and epoch != self.row["epochs"]):
            return
        for how, curve in self.kept.items():
            curve[str(epoch)] = self.accuracy(stored=how == "stored")
        curves = {**self.others, str(self.key): self.kept}
        last = [max(one["stored"].items(), key=lambda point: int(point[0])) for one in curves.values()]
        least = min(int(reached) for reached, _ in last)
        accuracies = [accuracy for _, accuracy in last]
        keep(
            {
                **self.row,
                "epochs": least,
                "passes": self.row["passes"] - (self.row["epochs"] - least),
                "keys": len(curves),
                "curves": curves,
                "accuracies": accuracies,
                "accuracy_mean": statistics.fmean(accuracies),
                "accuracy_std": statistics.stdev(accuracies) if len(accuracies) > 1 else 0.0,
            }
        )

    def accuracy(self, *, stored: bool) -> float:
        """Of the network as it is; the layers are fixed, so that what they give is computed once."""
        import torch

        network = self.course.network
        with torch.no_grad():
            if self.seen is None:
                parts = torch.split(torch.from_numpy(self.images.copy()), 500)
                self.seen = torch.cat([network.flat(few.float() / 255) for few in parts])
            before = {name: value.clone() for name, value in network.norm.state_dict().items()}
            network.train(not stored)
            scores = network.outputs(network.last(self.seen))
            network.norm.load_state_dict(before)
        return float((scores.argmax(1).numpy() == self.labels).mean())
