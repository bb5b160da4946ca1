"""The networks of the comparisons, each rebuilt from a name, the shape of a record and the number of classes.

AdLM: Phan et al. Sec. IV (MNIST: 5x5x32, 5x5x64, 25; CIFAR-10: 3x3x128, 5x5x128, 5x5x256, 30), normalised by
Eq. 22.
DP-SGD: the convolutional network of Opacus' MNIST example, a small multilayer perceptron, a linear model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]
MOST_LAYERS, WIDEST = 16, 2**13


@dataclass(frozen=True)
class ConvolutionLayout:
    """The layers of an AdLM network.

    Attributes:
        kernels, maps, pools: of each convolution; for tables there is none, and `first` fully connected units
            instead.
        hidden: width of the last hidden layer, |h| in the paper.
    """

    kernels: tuple[int, ...]
    maps: tuple[int, ...]
    pools: tuple[int, ...]
    hidden: int
    first: int = 0


GREY_LAYOUT = ConvolutionLayout((5, 5), (32, 64), (2, 2), 25)
COLOUR_LAYOUT = ConvolutionLayout((3, 5, 5), (128, 128, 256), (3, 2, 2), 30)
TABLE = ConvolutionLayout((), (), (), 25, first=32)


def layout(shape: Shape) -> ConvolutionLayout:
    """The paper's layers for grey images, for colour images, and a small stand-in for tables."""
    return TABLE if len(shape) == 1 else GREY_LAYOUT if shape[2] == 1 else COLOUR_LAYOUT


class Contrast(nn.Module):
    """Eq. 22: h / max(h, (q + alpha * sum of h^2 over l maps)^beta), q = 2, l = 5, alpha = 1e-4, beta = 0.75;
    in [0, 1] for h >= 0.
    """

    def __init__(self, maps: int = 5) -> None:
        super().__init__()
        self.maps = maps

    def forward(self, hidden: Tensor) -> Tensor:
        """Over neighbouring maps (dimension 1) of non-negative activations."""
        count = hidden.shape[1]
        near = (
            torch.ones(count, count, dtype=hidden.dtype, device=hidden.device)
            .triu(-(self.maps // 2))
            .tril(self.maps // 2)
        )
        # The sum over neighbours as a product with a band: several times as fast as taking windows, above all
        # backwards.
        total = (
            (near @ (hidden * hidden).flatten(2)).reshape(hidden.shape)
            if hidden.ndim > 2
            else (hidden * hidden) @ near
        )
        root = (2.0 + 1e-4 * total).sqrt()
        return hidden / torch.maximum(hidden, root * root.sqrt())


class UnitRange(nn.Module):
    """(h - least) / (greatest - least) of every unit, over the batch while training (as published), by stored
    ends when predicting.

    With the ends of the batch a record's prediction would depend on all others beside it, and no count of
    right answers would have a bounded sensitivity (docs/proofs/evaluation.md#count). The stored ends are
    running means over the batches of training.
    """

    least: Tensor
    greatest: Tensor

    def __init__(self, units: int, momentum: float = 0.05) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("least", torch.zeros(units))
        self.register_buffer("greatest", torch.ones(units))

    def forward(self, hidden: Tensor) -> Tensor:
        """Into [0, 1] for every training record, so that Lemma 5's bound on the coefficients applies."""
        least, greatest = self.least, self.greatest
        if self.training:
            # Gradients go through both ends: a common shift of a unit changes nothing, and must not be
            # learned.
            least, greatest = hidden.amin(0), hidden.amax(0)
            self.least.lerp_(least.detach(), self.momentum)
            self.greatest.lerp_(greatest.detach(), self.momentum)
        return ((hidden - least) / (greatest - least).clamp_min(1e-6)).clamp(0, 1)


class Adlm(nn.Module):
    """AdLM's network: an affine layer with a fixed (perturbed) bias, normalised hidden layers, linear outputs
    without a bias.
    """

    bias: Tensor

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        plan = layout(shape)
        self.first, self.body, width = _hidden(shape, plan, bound=True)
        self.register_buffer("bias", torch.zeros(plan.first or plan.maps[0]))
        # Rescaling to [0, 1] bounds the last hidden layer; a rectifier before it would only leave units
        # without a gradient.
        self.last = nn.Sequential(nn.Linear(width, plan.hidden), UnitRange(plan.hidden))
        self.outputs = nn.Linear(plan.hidden, classes, bias=False)

    def forward(self, records: Tensor) -> Tensor:
        """Scores of a batch of records in their encoded shape."""
        affine = self.first(channels_first(records))
        # Adding the same to all, then pooling, is pooling, then adding, and the latter has less to do. Tables
        # have no pooling.
        pools = 1 if affine.ndim > 2 else 0
        affine = self.body[:pools](affine)
        affine = affine + self.bias.reshape(1, -1, *[1] * (affine.ndim - 2))
        scores: Tensor = self.outputs(self.last(self.body[pools:](affine)))
        return scores


class Ordered(nn.Module):
    """A plain feed-forward network over encoded records, to tell their class or (an autoencoder) to return
    them.
    """

    def __init__(self, layers: nn.Sequential, *, reconstructs: bool = False) -> None:
        super().__init__()
        self.layers, self.reconstructs = layers, reconstructs

    def forward(self, records: Tensor) -> Tensor:
        """Scores of a batch of records in their encoded shape."""
        scores: Tensor = self.layers(channels_first(records))
        return scores


def pretraining(shape: Shape, classes: int) -> Ordered:
    """The network that relevance is propagated through: AdLM's layers without normalising, every layer known
    to LRP.
    """
    plan = layout(shape)
    first, body, width = _hidden(shape, plan, bound=False)
    return Ordered(
        nn.Sequential(first, *body, nn.Linear(width, plan.hidden), nn.ReLU(), nn.Linear(plan.hidden, classes))
    )


def opacus_cnn(shape: Shape, classes: int, units: int = 32) -> Ordered:
    """The network of Opacus' MNIST example (examples/mnist.py), for any image of at least 16 x 16."""
    convolutions = [nn.Conv2d(shape[2], 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1)]
    convolutions += [nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten()]
    width = _width(nn.Sequential(*convolutions), shape)
    return Ordered(
        nn.Sequential(*convolutions, nn.Linear(width, units), nn.ReLU(), nn.Linear(units, classes))
    )


def two_convolutions(shape: Shape, classes: int) -> Ordered:
    """Optimized noise's network for MNIST (Xiang et al., Table II): two convolutions and a hidden layer of 128
    units. Kernels, maps and pooling are not in the paper: those of Opacus' example are taken.
    """
    return opacus_cnn(shape, classes, units=128)


def six_convolutions(shape: Shape, classes: int) -> Ordered:
    """Optimized noise's network for CIFAR-10, see airlock/models/papers/convolutions.py."""
    from airlock.models.papers.convolutions import network

    return network(shape, classes)


def perceptron(shape: Shape, classes: int, units: int = 64) -> Ordered:
    """One hidden layer."""
    return Ordered(
        nn.Sequential(nn.Flatten(), nn.Linear(_size(shape), units), nn.Tanh(), nn.Linear(units, classes))
    )


def linear(shape: Shape, classes: int) -> Ordered:
    """Logistic regression on the encoded record."""
    return Ordered(nn.Sequential(nn.Flatten(), nn.Linear(_size(shape), classes)))


def softplus(hidden: Shape, shape: Shape, classes: int) -> Ordered:
    """DP-MAC's classifier: no biases, softplus between the layers."""
    return _dense((_size(shape), *hidden, classes), nn.Softplus)


def autoencoder(hidden: Shape, shape: Shape, classes: int) -> Ordered:
    """DP-MAC's autoencoder: no biases, softplus after every layer; it has the record for its target and no
    classes.
    """
    dense = _dense((_size(shape), *hidden, _size(shape)), nn.Softplus)
    return Ordered(dense.layers.append(nn.Softplus()), reconstructs=True)


def relu(hidden: Shape, shape: Shape, classes: int) -> Ordered:
    """The classifier of DP-MAC's authors' program: biases and rectifiers."""
    return _dense((_size(shape), *hidden, classes), nn.ReLU)


def relu_autoencoder(hidden: Shape, shape: Shape, classes: int) -> Ordered:
    """The autoencoder of DP-MAC's authors' program: the last layer is linear."""
    return Ordered(_dense((_size(shape), *hidden, _size(shape)), nn.ReLU).layers, reconstructs=True)


def neurons(hidden: Shape, shape: Shape, classes: int) -> nn.Module:
    """Neuron noise injection's network, see airlock/models/papers/neurons.py."""
    from airlock.models.papers.neurons import network

    return network(hidden, shape, classes)


def belief(layers: Shape, shape: Shape, classes: int) -> nn.Module:
    """pCDBN's network: maps of each layer, then the width of the fully connected one."""
    from airlock.models.papers.belief import Belief

    return Belief(layers, shape, classes)


def adlm_grey(shape: Shape, classes: int) -> nn.Module:
    """The network of AdLM's authors' program, for grey images."""
    from airlock.models.papers.adlm_program import AdlmProgram

    return AdlmProgram(shape, classes)


def adlm_program(shape: Shape, classes: int) -> nn.Module:
    """The same over pixels in [0, 1]."""
    from airlock.models.papers.adlm_program import AdlmProgram

    return AdlmProgram(shape, classes, signed=False)


def adlm_colour(shape: Shape, classes: int) -> nn.Module:
    """The network of AdLM's authors' program for colour images."""
    from airlock.models.papers.adlm_colour import AdlmColour

    return AdlmColour(shape, classes)


def strides(layers: Shape, shape: Shape, classes: int) -> nn.Module:
    """The network of pCDBN's authors' program, named as `belief` is."""
    from airlock.models.papers.strided import Strided

    return Strided(layers, shape, classes)


NETWORKS: dict[str, Callable[[Shape, int], nn.Module]] = {
    "adlm": Adlm,
    "adlm-program": adlm_program,
    "adlm-grey": adlm_grey,
    "adlm-colour": adlm_colour,
    "pretraining": pretraining,
    "opacus-cnn": opacus_cnn,
    "two-convolutions": two_convolutions,
    "six-convolutions": six_convolutions,
    "perceptron": perceptron,
    "linear": linear,
}
# Named with the widths of their hidden layers: softplus:300-100.
LAYERED_NETWORKS: dict[str, Callable[[Shape, Shape, int], nn.Module]] = {
    "softplus": softplus,
    "autoencoder": autoencoder,
    "neurons": neurons,
    "relu": relu,
    "relu-autoencoder": relu_autoencoder,
    "pcdbn": belief,
    "strided": strides,
}


def build(name: str, shape: Shape, classes: int, *, seed: int) -> nn.Module:
    """A freshly initialised network; the seed is public, for nothing here depends on a record."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        kind, _, widths = name.partition(":")
        if kind in LAYERED_NETWORKS:
            return LAYERED_NETWORKS[kind](
                tuple(int(width) for width in widths.split("-") if width), tuple(shape), classes
            )
        return NETWORKS[name](tuple(shape), classes)


def state_shapes(name: str, shape: Shape, classes: int) -> dict[str, Shape]:
    """The tensors that a network of that name has, from its name alone: nothing is allocated.

    Raises:
        ValueError: there is no such network for records of that shape.
    """
    kind, _, listed = name.partition(":")
    widths = listed.split("-") if listed else []
    sound = all(width.isdecimal() and 0 < int(width) <= WIDEST for width in widths)
    known = kind in LAYERED_NETWORKS if widths else name in NETWORKS
    if not known or not sound or len(widths) > MOST_LAYERS:
        raise ValueError("a network that is not known")
    try:
        with torch.device("meta"):
            state = build(name, shape, classes, seed=0).state_dict()
    except (RuntimeError, IndexError, ValueError):
        raise ValueError("a network that is not for records of this shape") from None
    return {part: tuple(value.shape) for part, value in state.items()}


def _hidden(shape: Shape, plan: ConvolutionLayout, *, bound: bool) -> tuple[nn.Module, nn.Sequential, int]:
    """The first affine layer (its bias left out where it is
    fixed), what follows it, and the width of that.
    """
    if not plan.kernels:
        return (
            nn.Linear(_size(shape), plan.first, bias=not bound),
            nn.Sequential(nn.ReLU(), *([Contrast()] if bound else [])),
            plan.first,
        )
    layers: list[nn.Module] = []
    inputs = shape[2]
    for number, (kernel, maps, pool) in enumerate(zip(plan.kernels, plan.maps, plan.pools, strict=True)):
        layers.append(nn.Conv2d(inputs, maps, kernel, padding=kernel // 2, bias=number > 0 or not bound))
        # The greatest of rectified values is the rectified greatest; rectifying after pooling has less to do.
        layers += [nn.MaxPool2d(pool), nn.ReLU(), Contrast()] if bound else [nn.ReLU(), nn.MaxPool2d(pool)]
        inputs = maps
    layers.append(nn.Flatten())
    return layers[0], nn.Sequential(*layers[1:]), _width(nn.Sequential(*layers), shape)


def _dense(sizes: Shape, unit: type[nn.Module]) -> Ordered:
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs, bias=unit is nn.ReLU), unit()]
    return Ordered(nn.Sequential(*layers[:-1]))


def _width(layers: nn.Sequential, shape: Shape) -> int:
    with torch.no_grad():
        return int(layers(channels_first(torch.zeros(1, *shape))).shape[1])


def _size(shape: Shape) -> int:
    size = 1
    for side in shape:
        size *= side
    return size


def channels_first(records: Tensor) -> Tensor:
    """Images come as (n, height, width, channels); tables stay as they are."""
    return records.permute(0, 3, 1, 2) if records.ndim == 4 else records
