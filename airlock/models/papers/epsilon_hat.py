"""Adam as TensorFlow has it, which the programs of Phan et al. are written in.

    theta <- theta - rate * sqrt(1 - b2^t) / (1 - b1^t) * m / (sqrt(v) + epsilon)

The paper that Adam is from calls this the variant with "epsilon hat" (Kingma and Ba 2015, end of Sec. 2);
torch.optim.Adam corrects v before epsilon is added. They differ where gradients are about as small as
epsilon, and those of a mean over a batch can be.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8


class EpsilonHatAdam(torch.optim.Optimizer):
    """With the programs' defaults: 0.9, 0.999, 1e-8."""

    def __init__(self, parameters: Iterable[Tensor], *, rate: float) -> None:
        super().__init__(parameters, {"lr": rate})
        for group in self.param_groups:
            for one in group["params"]:
                self.state[one] = {
                    "step": torch.zeros(()),
                    "first": torch.zeros_like(one),
                    "second": torch.zeros_like(one),
                }

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step along the gradients that the parameters have; those without one stay."""
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is not None:
                    self._move(one, one.grad, group["lr"])

    def _move(self, one: Tensor, gradient: Tensor, rate: float) -> None:
        kept = self.state[one]
        kept["step"] += 1
        count = float(kept["step"])
        kept["first"].lerp_(gradient, 1 - FIRST)
        kept["second"].mul_(SECOND).addcmul_(gradient, gradient, value=1 - SECOND)
        length = rate * (1 - SECOND**count) ** 0.5 / (1 - FIRST**count)
        one.addcdiv_(kept["first"], kept["second"].sqrt().add_(EPSILON), value=-length)
