"""The method of auxiliary coordinates (Carreira-Perpinan and Wang 2014) as DP-MAC uses it, mu = 1.

Layer k has weights W_k (inputs x outputs) and an objective of its own, E_k(W_k) = 1/2 |z_k - f(z_{k-1}
W_k)|^2 for each record; the last one fits the record itself (an autoencoder) or its label, 1/2 sum_h
[softplus(a_h) - y_h a_h] (App. G). f is softplus in the paper; the authors' program has rectifiers, a linear
last layer and biases (an input that is always 1, the last row of W_k). Everything
here is done record by record: no row of an answer depends on another record.

With v = z_{k-1} and a = w_h . v, all objectives have the gradient e_h v and the Hessian s_h v v^T in w_h. So
the coefficients of the second-order expansion at w, b_h = (e_h - s_h a) v and C_h = s_h / 2 v v^T, are outer
products, and their norms over all h are |v| |e - s a| and |v|^2 |s| / 2. To first order b_h = e_h v, and
there is no C.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

Weights = Sequence[Tensor]
Unit = Literal["softplus", "relu", "linear", "logistic"]
Order = Literal[1, 2]
FIRST_MOMENT, SECOND_MOMENT, ADAM_FLOOR = 0.9, 0.999, 1e-8


@dataclass(frozen=True)
class LayerUnits:
    """What layers compute. `logistic` is for labels: its objective is App.

    G's, and the released network has the activation itself.
    """

    hidden: Literal["softplus", "relu"] = "softplus"
    output: Unit = "logistic"
    biases: bool = False

    def each(self, layers: int) -> list[Unit]:
        """Layer by layer."""
        return [*[self.hidden] * (layers - 1), self.output]

    def activate(self, inputs: Tensor, weight: Tensor) -> Tensor:
        """a of every unit of a layer."""
        return torch.addmm(weight[-1], inputs, weight[:-1]) if self.biases else inputs @ weight

    def without_bias(self, weight: Tensor) -> Tensor:
        """What the inputs are multiplied with."""
        return weight[:-1] if self.biases else weight

    def extend(self, inputs: Tensor) -> Tensor:
        """The inputs, and the constant one where there are biases."""
        return torch.cat([inputs, inputs.new_ones(len(inputs), 1)], dim=1) if self.biases else inputs


CLASSIFIER, AUTOENCODER = LayerUnits(), LayerUnits(output="softplus")
"""The paper's."""


@dataclass(frozen=True)
class Coordinates:
    """How z is found: `steps` steps of Adam or plain descent, and a bound on the norm of each layer's z."""

    steps: int
    rate: float
    bound: float
    optimiser: Literal["adam", "sgd"] = "adam"


@dataclass(frozen=True)
class Coefficients:
    """One layer's coefficients of a batch, factored: inputs z_{k-1}, b = inputs x linear, C = curvature / 2 x
    inputs x inputs.

    Attributes:
        inputs: (records, inputs). linear: (records, outputs). curvature: (records, outputs), or None to first
            order.
    """

    inputs: Tensor
    linear: Tensor
    curvature: Tensor | None

    def norms(self) -> list[Tensor]:
        """Of every record's b (and C), in Frobenius norm over the whole layer."""
        size = self.inputs.norm(dim=1)
        found = [size * self.linear.norm(dim=1)]
        return found if self.curvature is None else [*found, size**2 * self.curvature.norm(dim=1) / 2]

    def clipped_sums(self, thresholds: Sequence[float]) -> list[Tensor]:
        """Sums over the batch of b (inputs x outputs) and C (outputs x inputs x inputs), each record's
        clipped to its threshold.

        A record whose coefficients or norms are not finite contributes nothing
        (docs/proofs/dp-sgd.md#finite-gradients).
        """
        norms = self.norms()
        sound = torch.stack([norm.isfinite() for norm in norms]).all(0)
        factors = [
            (limit / norm.clamp_min(1e-30)).clamp(max=1.0)
            for limit, norm in zip(thresholds, norms, strict=True)
        ]
        inputs, linear = (_only(sound, one) for one in (self.inputs, self.linear))
        sums = [(inputs * _only(sound, factors[0][:, None])).T @ linear]
        if self.curvature is not None:
            bend = _only(sound, self.curvature * factors[1][:, None] / 2)
            sums.append(torch.einsum("nh,ni,nj->hij", bend, inputs, inputs))
        return sums


def _only(sound: Tensor, rows: Tensor) -> Tensor:
    """Zeros in the place of other rows; a product with 0 would leave what is not finite as it is."""
    return torch.where(sound[:, None], rows, rows.new_zeros(()))


def apply(unit: Unit, activation: Tensor) -> Tensor:
    """f(a)."""
    if unit == "softplus":
        return functional.softplus(activation)
    return functional.relu(activation) if unit == "relu" else activation


def slope_in(activation: Tensor, target: Tensor, unit: Unit) -> Tensor:
    """e: first derivative of a unit's objective in its activation a."""
    if unit == "linear":
        return activation - target
    if unit == "relu":
        return (activation - target).mul_(activation > 0)
    slope = torch.sigmoid(activation)
    if unit == "logistic":
        return slope.sub_(target).div_(2)
    return functional.softplus(activation).sub_(target).mul_(slope)


def bend_in(activation: Tensor, target: Tensor, unit: Unit) -> Tensor:
    """s: the second derivative."""
    if unit == "linear":
        return torch.ones_like(activation)
    if unit == "relu":
        return (activation > 0).to(activation)
    slope = torch.sigmoid(activation)
    bend = slope * (1 - slope)
    return bend / 2 if unit == "logistic" else (functional.softplus(activation) - target) * bend + slope**2


def find_coordinates(
    weights: Weights, records: Tensor, targets: Tensor, how: Coordinates, units: LayerUnits
) -> list[Tensor]:
    """z_1 .. z_K of every record: from the forward pass, downhill on E_o + sum E_k (Eq. 2)."""
    z = forward(weights, records, how.bound, units)
    given = units.activate(records, weights[0])  # the same at every step
    first, second = [torch.zeros_like(one) for one in z], [torch.zeros_like(one) for one in z]
    for step in range(1, how.steps + 1):
        for k, slope in enumerate(coordinate_gradients(weights, given, targets, z, units)):
            if how.optimiser == "adam":
                slope = adam(slope, first[k], second[k], step)
            z[k] = shorten(torch.sub(z[k], slope, alpha=how.rate), how.bound)
    return z


def forward(weights: Weights, records: Tensor, bound: float, units: LayerUnits) -> list[Tensor]:
    """Hidden activations, each layer's norm at most `bound`."""
    z: list[Tensor] = []
    for weight in weights[:-1]:
        z.append(shorten(apply(units.hidden, units.activate(z[-1] if z else records, weight)), bound))
    return z


def coordinate_gradients(
    weights: Weights, given: Tensor, targets: Tensor, z: Sequence[Tensor], units: LayerUnits
) -> list[Tensor]:
    """Of Eq. 2 in every z_k: its own layer's miss, and what the next layer's objective asks of it.

    `given`: the first layer's a.
    """
    wanted, kinds = [*z, targets], units.each(len(weights))
    active = [given, *(units.activate(one, weight) for one, weight in zip(z, weights[1:], strict=True))]
    slopes = []
    for k in range(1, len(weights)):
        above = slope_in(active[k], wanted[k], kinds[k])
        slopes.append(
            torch.addmm(
                z[k - 1] - apply(kinds[k - 1], active[k - 1]), above, units.without_bias(weights[k]).T
            )
        )
    return slopes


def coefficients(
    weights: Weights, records: Tensor, targets: Tensor, z: Sequence[Tensor], units: LayerUnits, order: Order
) -> list[Coefficients]:
    """Of every layer's objective, expanded at `weights`."""
    found, inputs, wanted = [], [records, *z], [*z, targets]
    for k, (weight, unit) in enumerate(zip(weights, units.each(len(weights)), strict=True)):
        active = units.activate(inputs[k], weight)
        slope, bend = (
            slope_in(active, wanted[k], unit),
            bend_in(active, wanted[k], unit) if order == 2 else None,
        )
        found.append(
            Coefficients(units.extend(inputs[k]), slope if bend is None else slope - bend * active, bend)
        )
    return found


def adam(slope: Tensor, first: Tensor, second: Tensor, step: int) -> Tensor:
    """Adam's direction; the two running means are changed in place.

    Every element for itself, so records stay apart.
    """
    first.lerp_(slope, 1 - FIRST_MOMENT)
    second.mul_(SECOND_MOMENT).addcmul_(slope, slope, value=1 - SECOND_MOMENT)
    # Both corrections for the start at 0 in one factor: the elements are visited as seldom as can be.
    late = math.sqrt(1 - SECOND_MOMENT**step)
    return (first / second.sqrt().add_(ADAM_FLOOR * late)).mul_(late / (1 - FIRST_MOMENT**step))


def shorten(rows: Tensor, bound: float) -> Tensor:
    """Rows of norm at most `bound`."""
    short: Tensor = rows * (bound / rows.norm(dim=1, keepdim=True).clamp_min(1e-30)).clamp(max=1.0)
    return short
