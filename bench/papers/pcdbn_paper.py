"""`pcdbn` as its authors' code has it, at the paper's size: 60,000 records, 32 and 64 maps, up to 2,400
epochs of what is above them.

    AIRLOCK_DATA_HOME=../shared/data python -m bench.papers.pcdbn paper        twice: pre-training, and the rest

Rows go to bench/results/pcdbn.json as they come, with accuracy after some epochs (the paper's Fig. 5b).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.papers.pcdbn import describe, keep, settle

PRETRAINING_EPOCHS = 2
"""The code has 10: half an hour of a core."""
POINTS = (1, 5, 10, 25, 50, 100, 200, 300, 600, 900, 1200, 1500, 1800, 2100, 2400)
"""Epochs after which accuracy is told, at the paper's size."""


def paper(epsilon: float, layers: float, state: Path, epochs: int) -> None:
    """The code's reading at the paper's size, its layers pre-trained at one epsilon and what is above them
    trained at another.

    Pre-trained layers stay in `state`: the first call makes them, the second goes on.
    """
    from safetensors.torch import load_file, save_file

    from bench.papers.adlm import KEY, as_batches, read_mnist
    from stages.release.keyed_noise import KeyedNoise
    from stages.release.papers.dp_sgd import dp_sgd
    from stages.release.papers.pcdbn import pcdbn, training

    train, known, start = read_mnist("train"), state / f"{layers:g}.safetensors", time.monotonic()
    options = {
        "preset": "authors-code",
        "epochs": epochs,
        "pretraining_epochs": PRETRAINING_EPOCHS,
        "learning_rate": 2e-4,
    }
    asked = {"epsilon": epsilon, "options": options}
    params, facts = settle(asked if known.exists() else {**asked, "epsilon": layers}, len(train[1]))
    recipe, keyed = pcdbn.resolve(params, facts), KeyedNoise(KEY, f"the paper's size, {layers:g}")
    network, data = training.fresh(recipe, facts), dp_sgd.load(as_batches(*train), facts)
    if not known.exists():
        training.pretrain(network, data, recipe, keyed)
        save_file({name: value.contiguous() for name, value in network.state_dict().items()}, known)
        print(
            f"pre-trained in {time.monotonic() - start:.0f} s; the same command again does the rest",
            flush=True,
        )
        return
    network.load_state_dict(load_file(known))
    row = describe(asked, params, facts)
    before = linear(training.fresh(recipe, facts), train, read_mnist("t10k"))
    row["linear"] = {"before": before, "pre-trained": linear(network, train, read_mnist("t10k"))}
    row["reading"] += "" if layers == epsilon else f", layers pre-trained at {layers:g}"
    training.fine_tune(network, data, recipe, keyed, Judge(row, network, *read_mnist("t10k")))


def linear(network: Any, train: tuple[Any, Any], test: tuple[Any, Any]) -> float:
    """What the layers are worth: accuracy of least squares (with a little damping) on what they give, from
    6,000 records, no noise.
    """
    import torch

    from stages.release.papers.dp_sgd import dp_sgd
    from stages.release.papers.pcdbn import training

    few = (train[0][:6000], train[1][:6000])
    held = [
        dp_sgd.Data(torch.from_numpy(images.copy()), torch.from_numpy(labels.astype("int64")))
        for images, labels in (few, test)
    ]
    units, seen = (
        training.units_of(network, data, torch.arange(len(data.labels)), len(network.filters))
        .flatten(1)
        .double()
        for data in held
    )
    centre = units.mean(0)
    gram = (units - centre).T @ (units - centre)
    damping = 1e-5 * torch.linalg.matrix_norm(gram, 2) * torch.eye(len(gram), dtype=gram.dtype)
    weights = torch.linalg.solve(
        gram + damping, (units - centre).T @ torch.nn.functional.one_hot(held[0].labels).double()
    )
    return float((((seen - centre) @ weights).argmax(1) == held[1].labels).double().mean())


class Judge:
    """Accuracy on the test set after some epochs, and the row so far; the layers are fixed, so that what they
    give is computed once.
    """

    def __init__(self, row: dict[str, Any], network: Any, images: Any, labels: Any) -> None:
        import torch

        from stages.release.papers.dp_sgd import dp_sgd
        from stages.release.papers.pcdbn import training

        self.row, self.network, self.labels = row, network, torch.from_numpy(labels.astype("int64"))
        self.curve, self.start = dict[int, float](), time.monotonic()
        held = dp_sgd.Data(torch.from_numpy(images.copy()), self.labels)
        self.below = training.units_of(
            network, held, torch.arange(len(labels)), len(network.filters)
        ).flatten(1)

    def __call__(self, epoch: int, total: int) -> None:
        import torch

        if epoch not in POINTS and epoch != total:
            return
        self.network.eval()
        with torch.no_grad():
            right = self.network.outputs(self.network.last(self.below)).argmax(1) == self.labels
        self.curve[epoch] = float(right.float().mean())
        self.network.train()
        figures = {
            "accuracy_mean": self.curve[epoch],
            "curve": self.curve,
            "seconds": round(time.monotonic() - self.start, 1),
        }
        figures["passes"] = self.row["passes"] - (total - epoch)  # of what was done so far, one an epoch
        keep({**self.row, "epochs": epoch, "options": {**self.row["options"], "epochs": epoch}, **figures})
