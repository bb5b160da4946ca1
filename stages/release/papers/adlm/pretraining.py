"""The network that AdLM's relevance goes through: public, trained with privacy, or (as published) trained on
the raw records.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from airlock.params import Params
from airlock.privacy.plan import Facts
from stages.release.papers.adlm.recipe import NETWORK_SHARE, Recipe
from stages.release.papers.dp_sgd import dp_sgd

PUBLIC_SEED = 20180423
"""Of the weights of the public network: any number that was fixed before the records were seen (the paper's
date).
"""
STEPS_AN_EPOCH = 100
LEARNING_RATE = 1e-3
BATCH = 128


def network(recipe: Recipe, params: Params, facts: Facts, reader: Any, *, key: bytes, release_id: str) -> Any:
    """A network of the paper's layers; how much it knows of the records is the option `network`."""
    from airlock.models.papers.networks import build

    fresh = build("pretraining", facts.shape, len(facts.labels), seed=PUBLIC_SEED)
    epochs = recipe.options.pretraining_epochs
    if recipe.options.network == "raw":
        _train_raw(fresh, dp_sgd.load(reader, facts), epochs, signed=recipe.signed)
    elif recipe.options.network == "released":
        settings = _settings(epochs, params, facts)
        dp_sgd.descend(
            fresh, dp_sgd.load(reader, facts), settings, key=key, release_id=f"{release_id} network"
        )
    return fresh.eval()


def event(epochs: int, params: Params, facts: Facts) -> dict[str, Any]:
    """What the network costs when it is trained with privacy."""
    return _settings(epochs, params, facts).event()


def _settings(epochs: int, params: Params, facts: Facts) -> dp_sgd.Settings:
    rate = 1 / STEPS_AN_EPOCH
    budget = NETWORK_SHARE * params.release.epsilon
    return dp_sgd.calibrate(
        rate,
        epochs * STEPS_AN_EPOCH,
        1.0,
        0.5,
        budget,
        params.release.delta,
        params.release.neighbours,
        facts.n,
    )


def _train_raw(fresh: Any, data: dp_sgd.Data, epochs: int, *, signed: bool) -> None:
    """Ordinary training (Adam): line 1 of Algorithm 1, the step without a proof. Of pixels in [0, 1] or [-1, 1]."""
    import torch

    known = torch.from_numpy(np.flatnonzero(data.labels.numpy() >= 0))
    order = torch.Generator().manual_seed(0)
    optimiser = torch.optim.Adam(fresh.parameters(), lr=LEARNING_RATE)
    for _ in range(epochs):
        for rows in torch.split(known[torch.randperm(len(known), generator=order)], BATCH):
            optimiser.zero_grad()
            seen = 2 * data.scaled(rows) - 1 if signed else data.scaled(rows)
            torch.autograd.backward(torch.nn.functional.cross_entropy(fresh(seen), data.labels[rows]))
            optimiser.step()
