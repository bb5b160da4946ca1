"""Layer-wise relevance propagation with the epsilon rule (Phan et al., Eqs. 4-9; Bach et al. 2015), by
captum.

    R_p = sum_m  z_pm / (z_m + sign(z_m) mu) R_m,   z_pm = a_p w_pm,   z_m = sum_p z_pm + b_m

The relevance that starts it is the largest output, or all outputs as they are. captum's epsilon rule is this rule;
tests/models/test_lrp.py holds it against a slow one written straight from the equations.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

BATCH = 256


def relevances(network: nn.Module, records: Tensor, *, stabiliser: float, whole: bool = False) -> Tensor:
    """Relevance of every feature of every record for the largest output, or for the `whole` vector of outputs, in the
    shape of the records.
    """
    from captum.attr import LRP

    parts = []
    for batch in torch.split(records, BATCH):
        with torch.no_grad():
            outputs = network.eval()(batch)
        started = _summed(network, outputs.shape[1]) if whole else network
        _attach(network, stabiliser)
        target = torch.zeros(len(batch), dtype=torch.long) if whole else outputs.argmax(1)
        found = LRP(started).attribute(batch.clone().requires_grad_(), target=target)
        parts.append(found.detach())
    return torch.cat(parts)


def _summed(network: nn.Module, outputs: int) -> nn.Module:
    """The sum of all outputs, whose relevance is shared as they are: each has its own value."""
    from captum.attr._utils.lrp_rules import EpsilonRule

    total = nn.Linear(outputs, 1, bias=False).requires_grad_(False)
    nn.init.ones_(total.weight)
    total.rule = EpsilonRule(1e-9)
    return nn.Sequential(network, total).eval()


def _attach(network: nn.Module, stabiliser: float) -> None:
    """Give every layer its rule; captum takes them away after each call."""
    from captum.attr._utils.lrp_rules import EpsilonRule

    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.BatchNorm1d):
            module.rule = EpsilonRule(stabiliser)
        elif isinstance(module, nn.MaxPool2d | nn.Flatten):
            # They only choose and order: all relevance passes, and 1e-9 is there against 0 / 0.
            module.rule = EpsilonRule(1e-9)


def normalise(relevance: NDArray[np.float64]) -> NDArray[np.float64]:
    """(R - least) / (greatest - least) within each record, so in [0, 1]; a record whose relevances are all
    equal (or not finite) gets 0.
    """
    flat = np.nan_to_num(relevance.reshape(len(relevance), -1), nan=0.0, posinf=0.0, neginf=0.0)
    least, greatest = flat.min(1, keepdims=True), flat.max(1, keepdims=True)
    spread = greatest - least
    scaled: NDArray[np.float64] = np.clip(
        np.divide(flat - least, spread, out=np.zeros_like(flat), where=spread > 0), 0.0, 1.0
    )
    return scaled
