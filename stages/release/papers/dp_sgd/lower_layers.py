"""Convolutions trained on the raw records without noise, then fixed: `lower: raw`, as Xiang et al. do for
SVHN and CIFAR-10 (Sec. V-B).

The paper trains the whole network for 20 epochs, fixes its convolutions, begins the fully connected layers
anew and trains those privately on the same records. Fixed layers are a fixed map, so they are computed once.
What the convolutions learned of a record is released with
them and nothing bounds it: epsilon is infinite whatever noise the upper layers get, and only public data may
be released so.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from airlock.errors import ParamsError
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Plan

if TYPE_CHECKING:
    from torch import Tensor, nn

    from stages.release.papers.dp_sgd.dp_sgd import Data

Lower = Literal["private", "raw"]
FLAW = "the convolutions were trained on the raw records without noise"
UPPER_ARGUMENT = "docs/proofs/dp-sgd.md#fixed-lower-layers"
CONVOLUTIONAL_NETWORKS = ("opacus-cnn", "six-convolutions", "two-convolutions")
EPOCHS = 20
"""The paper's; its optimiser, rate and batch are not given."""
BATCH, RATE, SEED, PIECE = 128, 1e-3, 0, 1000


def check_lower(lower: Lower, model: str) -> None:
    """Only convolutions are fixed."""
    if lower == "raw" and model not in CONVOLUTIONAL_NETWORKS:
        raise ParamsError(
            "params.yaml: release.options.lower 'raw' is for networks with convolutions: use model "
            f"{CONVOLUTIONAL_NETWORKS[1]}"
        )


def price(plan: Plan, lower: Lower) -> Plan:
    """The plan of the upper layers' steps becomes that of the whole release: what it proves is then no more
    than a claim.
    """
    if lower == "private":
        return plan
    proven, reason = plan.proven, "; ".join(one for one in (FLAW, plan.proven.reason) if one)
    claimed = plan.claimed or Guarantee(
        "claimed", proven.unit, proven.neighbours, proven.epsilon, proven.delta, argument=UPPER_ARGUMENT
    )
    return replace(
        plan,
        parameters={**plan.parameters, "lower": lower},
        passes=plan.passes + EPOCHS + 1,
        proven=replace(
            proven, epsilon=math.inf, delta=0.0, event=None, reason=reason, argument=UPPER_ARGUMENT
        ),
        claimed=claimed,
        public_only=True,
    )


def fix(network: nn.Module, data: Data, lower: Lower, device: str = "cpu") -> tuple[nn.Module, Data]:
    """What is left to train, and the records that it sees.

    It shares its weights with `network`, which is what is released.
    """
    if lower == "private":
        return network, data
    below, above = split(network)
    fresh = {name: value.clone() for name, value in above.state_dict().items()}
    pretrain(network, data, device)
    above.load_state_dict(fresh)
    return above, replace(data, records=outputs(below, data, device))


def split(network: nn.Module) -> tuple[nn.Module, nn.Module]:
    """Convolutions with what flattens their maps, and the fully connected layers."""
    from torch import nn

    from airlock.models.papers.networks import Ordered

    layers = list(network.get_submodule("layers").children())
    cut = 1 + next(number for number, layer in enumerate(layers) if isinstance(layer, nn.Flatten))
    return Ordered(nn.Sequential(*layers[:cut])), Ordered(nn.Sequential(*layers[cut:]))


def pretrain(network: nn.Module, data: Data, device: str) -> None:
    """Adam on the raw records, without noise; the order of records is public."""
    import torch

    generator, rows = torch.Generator().manual_seed(SEED), torch.nonzero(data.labels >= 0).flatten()
    network.to(device).train()
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        for piece in torch.split(rows[torch.randperm(len(rows), generator=generator)], BATCH):
            optimiser.zero_grad()
            scores = network(data.scaled(piece).to(device))
            loss = torch.nn.functional.cross_entropy(scores, data.labels[piece].to(device))
            torch.autograd.backward(loss)
            optimiser.step()
    network.zero_grad()


def outputs(below: nn.Module, data: Data, device: str) -> Tensor:
    """Of every record, kept where records are kept."""
    import torch

    with torch.no_grad():
        parts = torch.split(torch.arange(len(data.labels)), PIECE)
        return torch.cat([below.to(device)(data.scaled(part).to(device)).cpu() for part in parts])
