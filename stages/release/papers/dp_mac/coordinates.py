"""The steps of `dp-mac`: noisy sums of clipped coefficients, thresholds from noisy histograms, directions
from a noisy covariance.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from airlock.models.devices import choose_device
from airlock.models.papers import mac
from airlock.models.papers.networks import channels_first
from stages.release import told_loss
from stages.release.interactive import Course, Keyed, State
from stages.release.papers.dp_sgd.dp_sgd import Data

if TYPE_CHECKING:
    from stages.release.papers.dp_mac.dp_mac import Recipe

SEED = 0
"""Of the first weights, which are public."""
PIECE = 1000


def train(recipe: Recipe, data: Data, course: Course) -> tuple[dict[str, Any], dict[str, Any]]:
    """All phases as one walk; the network's tensors, and the thresholds (of b, and of C to second order, layer
    by layer) with the curve of the last phase.
    """
    run = CoordinateDescent(
        recipe, data, course.keyed, choose_device(recipe.options.device, "release.options.device")
    )
    final = course.walk(run.start(), run.advance, recipe.pretraining + recipe.steps)
    found = {"thresholds": final["thresholds"].tolist(), "curve": told_loss.curve(final, recipe.steps)}
    return run.tensors(final), found


class CoordinateDescent:
    """One training: everything but the state."""

    def __init__(self, recipe: Recipe, data: Data, keyed: Keyed, device: str) -> None:
        options = recipe.options
        assert (
            options.z_steps
            and options.z_rate
            and options.bound_z
            and options.bound_w
            and options.learning_rate
            and options.decay
        )
        self.recipe, self.data, self.keyed, self.units, self.device = (
            recipe,
            data,
            keyed,
            recipe.units,
            torch.device(device),
        )
        self.how = mac.Coordinates(options.z_steps, options.z_rate, options.bound_z, options.z_optimiser)
        self.bound, self.first_rate, self.decay = options.bound_w, options.learning_rate, options.decay
        self.epoch = max(1, round(1 / recipe.rate))

    def start(self) -> State:
        """First weights, no momentum, the largest threshold for every layer."""
        options, generator, state = self.recipe.options, torch.Generator().manual_seed(SEED), State()
        for k, (inputs, outputs) in enumerate(self.recipe.shapes):
            spread = 1 / inputs if options.initial == "scaled" else 2 / (inputs + outputs)
            state[f"weight{k}"] = (torch.randn(inputs, outputs, generator=generator) * math.sqrt(spread)).to(
                self.device
            )
            state[f"first{k}"], state[f"second{k}"] = (
                torch.zeros_like(state[f"weight{k}"]) for _ in range(2)
            )
        if options.projection:
            size = math.prod(self.data.records.shape[1:])
            state["projection"] = torch.zeros(size, options.projection, device=self.device)
        largest = [options.threshold, options.threshold_second][: options.order] * self.recipe.layers
        state |= told_loss.start(flat(self.weights(state)), self.recipe.steps)
        return {**state, "thresholds": torch.tensor(largest, dtype=torch.float64)}

    def weights(self, state: State) -> list[Tensor]:
        """Layer by layer, biases in the last row."""
        return [state[f"weight{k}"] for k in range(self.recipe.layers)]

    def tensors(self, state: State) -> dict[str, Any]:
        """The network that is released: of the records themselves, so a projection becomes part of the first
        layer.
        """
        found = {}
        for k, weight in enumerate(self.weights(state)):
            body, name = self.units.without_bias(weight), f"network.layers.{1 + 2 * k}"
            found[f"{name}.weight"] = (
                state["projection"] @ body if k == 0 and "projection" in state else body
            ).T
            found |= {f"{name}.bias": weight[-1]} if self.units.biases else {}
        return {name: value.contiguous().cpu().numpy() for name, value in found.items()}

    def advance(self, step: int, state: State) -> State:
        """One step; before the first one a projection is learned, and between the phases thresholds,
        whereupon training begins anew.
        """
        first = self.recipe.pretraining
        if step == 0 and "projection" in state:
            state = {**state, "projection": self.learn_projection(state["projection"].shape[1])}
        if first and step == first:
            kept = {name: value for name, value in state.items() if name == "projection"}
            state = {**self.start(), **kept, "thresholds": self.learn_thresholds(step, state)}
        rows = self.keyed.sample(step, self.recipe.rate, len(self.data.labels))
        noisy = self.perturb(step, self.sums(state, rows), state["thresholds"])
        within, count = (step - first, self.recipe.steps) if step >= first else (step, first)
        return {**self.update(within, state, noisy), **self.tell(within, count, state, noisy)}

    def tell(self, step: int, count: int, state: State, noisy: list[Tensor]) -> State:
        """What this step's noisy polynomial says of the move before it."""
        order, weights = self.recipe.options.order, self.weights(state)
        scales = (deviations(state["thresholds"], self.recipe) / self.recipe.batch).tolist()
        slopes = [slope_of(one, noisy[k * order : (k + 1) * order]) for k, one in enumerate(weights)]
        noise = [slope_noise(one, scales[k * order : (k + 1) * order]) for k, one in enumerate(weights)]
        return told_loss.follow(step, count, state, flat(weights), flat(slopes), flat(noise))

    def sums(self, state: State, rows: Tensor) -> list[Tensor]:
        """Clipped coefficients, summed over records; null records have none."""
        order, thresholds = self.recipe.options.order, state["thresholds"].tolist()
        totals = [torch.zeros(0)] * len(thresholds)
        for number, layer in enumerate(self.coefficients(state, rows)):
            own = slice(number * order, (number + 1) * order)
            totals[own] = layer.clipped_sums(thresholds[own])
        return totals

    def coefficients(self, state: State, rows: Tensor) -> list[mac.Coefficients]:
        """Of some records, with the auxiliary coordinates that suit each of them."""
        known, weights = rows[self.data.labels[rows] >= 0], self.weights(state)
        records = self.flat(known)
        targets = records
        if self.recipe.options.task == "classify":
            targets = torch.nn.functional.one_hot(self.data.labels[known], self.recipe.sizes[-1]).to(records)
        if "projection" in state:
            records = records @ state["projection"]
        z = mac.find_coordinates(weights, records, targets, self.how, self.units)
        return mac.coefficients(weights, records, targets, z, self.units, self.recipe.options.order)

    def flat(self, rows: Tensor) -> Tensor:
        """Records as vectors."""
        return channels_first(self.data.scaled(rows)).flatten(1).to(self.device)

    def perturb(self, step: int, totals: list[Tensor], thresholds: Tensor) -> list[Tensor]:
        """Divided by the expected size of a sample."""
        scales = deviations(thresholds, self.recipe).tolist()
        return [
            (total + scale * self.keyed.gaussian(step, f"block {number}", total, scale)) / self.recipe.batch
            for number, (total, scale) in enumerate(zip(totals, scales, strict=True))
        ]

    def update(self, step: int, state: State, noisy: list[Tensor]) -> State:
        """Adam on the noisy polynomial, `w_steps` times; columns of weights stay within their bound."""
        options, after = self.recipe.options, dict(state)
        epochs = (
            min(step // self.epoch, options.decay_epochs - 1) if options.decay_epochs else step // self.epoch
        )
        rate = self.first_rate * self.decay**epochs
        for k in range(self.recipe.layers):
            weight, first, second = (state[f"{name}{k}"].clone() for name in ("weight", "first", "second"))
            for extra in range(options.w_steps):
                slope = slope_of(weight, noisy[k * options.order : (k + 1) * options.order])
                weight = weight - rate * mac.adam(slope, first, second, step * options.w_steps + extra + 1)
            after |= {
                f"weight{k}": mac.shorten(weight.T, self.bound).T.contiguous(),
                f"first{k}": first,
                f"second{k}": second,
            }
        return after

    def learn_thresholds(self, step: int, state: State) -> Tensor:
        """Upper edge of the fullest bin of each noisy histogram of norms; what is beyond the largest
        threshold is in the last bin.
        """
        bins, largest = self.recipe.options.bins, state["thresholds"]
        counts = torch.zeros(len(largest), bins, dtype=torch.float64)
        for rows in torch.split(torch.arange(len(self.data.labels)), PIECE):
            norms = [norm for layer in self.coefficients(state, rows) for norm in layer.norms()]
            for number, norm in enumerate(norms):
                # A norm that is not finite is a long one.
                parts = (norm.double().cpu() / largest[number] * bins).nan_to_num(bins, bins, 0)
                places = parts.clamp(0, bins - 1).long()
                counts[number] += torch.bincount(places, minlength=bins)
        scale = self.recipe.options.histogram_sigma
        noisy = counts + scale * self.keyed.gaussian(step, "histograms", counts, scale)
        return largest * (noisy.argmax(dim=1) + 1) / bins

    def learn_projection(self, directions: int) -> Tensor:
        """Leading eigenvectors of the noisy sum of v v^T, v a record divided by its length; a null record is
        no part of it.

        Its Frobenius norm is 1, so a record moves the sum by at most 1, and replacing one by at most sqrt 2.
        Noise is drawn for the upper triangle, of the priced deviation on the diagonal and divided by sqrt 2
        off it: isotropic in Frobenius norm.
        """
        total, sigma = self.covariance(), self.recipe.options.projection_sigma
        # What is drawn below the diagonal is not used: it is noise of any size.
        scale = torch.full_like(total, sigma / math.sqrt(2)).triu(1) + sigma * torch.eye(len(total)).to(total)
        scale[scale == 0] = math.inf
        drawn = self.keyed.gaussian(0, "projection", total, scale).triu()
        noise = drawn.triu(1) / math.sqrt(2)
        noise = noise + noise.T + drawn.diag().diag()
        _, vectors = torch.linalg.eigh(total + sigma * noise)
        found: Tensor = vectors[:, -directions:].float().contiguous()
        return found

    def covariance(self) -> Tensor:
        """Sum of v v^T."""
        size = math.prod(self.data.records.shape[1:])
        total = torch.zeros(size, size, dtype=torch.float64, device=self.device)
        for rows in torch.split(torch.nonzero(self.data.labels >= 0).flatten(), PIECE):
            unit = torch.nn.functional.normalize(self.flat(rows), dim=1)
            total += unit.T @ unit
        return total


def slope_of(weight: Tensor, coefficients: list[Tensor]) -> Tensor:
    """Gradient of sum_h w_h . b_h + w_h^T C_h w_h."""
    if len(coefficients) == 1:
        return coefficients[0]
    linear, curved = coefficients
    return linear + torch.einsum("hij,jh->ih", curved + curved.transpose(1, 2), weight)


def slope_noise(weight: Tensor, scales: list[float]) -> Tensor:
    """No less than the deviation of `slope_of` in any direction, entry by entry: noise of both orders, where the
    second meets the weights twice.
    """
    linear, curved = (*scales, 0.0)[:2]
    squares = linear**2 + 4 * curved**2 * weight.square().sum(0, keepdim=True)
    return squares.sqrt().expand_as(weight)


def flat(parts: list[Tensor]) -> Tensor:
    """All of them as one vector."""
    return torch.cat([one.reshape(-1) for one in parts])


def deviations(thresholds: Tensor, recipe: Recipe) -> Tensor:
    """Standard deviation of the noise on every block: reach sigma T_k / lambda_k."""
    sizes = torch.tensor(recipe.blocks, dtype=torch.float64)
    weight = torch.ones_like(sizes) if recipe.options.allocation == "even" else thresholds * sizes.sqrt()
    return recipe.reach * recipe.sigma * thresholds / (weight / weight.sum()).sqrt()
