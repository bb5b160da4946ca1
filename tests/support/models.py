"""One small model of every kind, and one of every network: what an evaluation may be given."""

from __future__ import annotations

from typing import Any

import numpy as np

from airlock.models.classifier import NetworkModel
from airlock.models.features.features import feature_map
from airlock.models.features.projection import Centre, Whiten, centre
from airlock.models.model import Model
from airlock.models.papers import behaviour
from airlock.models.papers.networks import build
from airlock.models.papers.patches import LearnedModel, layer, learned_map

TABLE, GREY, COLOUR = (6,), (16, 16, 1), (16, 16, 3)
CLASSES = ("a", "b", "c")
NETWORKS = {
    "adlm": (TABLE, GREY, COLOUR),
    "adlm-program": (GREY,),
    "adlm-grey": (GREY,),
    "adlm-colour": (COLOUR,),
    "pretraining": (TABLE, GREY),
    "opacus-cnn": (GREY,),
    "two-convolutions": (GREY,),
    "six-convolutions": (COLOUR,),
    "perceptron": (TABLE, GREY),
    "linear": (TABLE,),
    "softplus:7-5": (TABLE,),
    "autoencoder:4": (TABLE,),
    "neurons:8-6-4": (TABLE,),
    "neurons:8-6": (GREY,),
    "relu:7": (TABLE, GREY),
    "relu-autoencoder:4": (TABLE,),
    "pcdbn:3-4-5": (GREY,),
    "strided:3-4-5": (GREY,),
}
MAPS = {
    "tabular-2": TABLE,
    "cosine-20-1": TABLE,
    "hog-1": GREY,
    "hog-2": COLOUR,
    "gabor-1": GREY,
    "strokes-1": GREY,
}
KINDS = {
    **{
        f"{name} {'x'.join(map(str, shape))}": (name, shape)
        for name, shapes in NETWORKS.items()
        for shape in shapes
    },
    **{f"{name} rows": (name, shape) for name, shape in MAPS.items()},
    "learned filters": ("learned", GREY),
    "behaviour": ("behaviour", (3 * 3 + 2,)),
}


def model(name: str) -> Model:
    """The model of one of KINDS, its weights random."""
    named, shape = KINDS[name]
    random = np.random.default_rng(7)
    if named in NETWORKS:
        return network(named, shape)
    if named == "learned":
        banks = [layer(random.standard_normal((3, 25)), 0), layer(random.standard_normal((2, 6 * 9)), 1)]
        steps = [Centre(random.integers(-9, 9, learned_map(shape, banks).width).astype(np.int64))]
        return LearnedModel(
            "patches-1", "image", shape, CLASSES, steps, head(len(steps[0].centre)), banks=banks
        )
    if named == "behaviour":
        window = {
            "attributes": 3,
            "days": 2,
            "slots": 2,
            "height": 2,
            "gain": 1.0,
            "stretch": 2.0,
            "influence": 0.3,
        }
        sizes = {"filters": (4, 4), "hidden": (4,), "own": (4, 3), "social": (4,), "average": (4,)}
        units = {f"machine.{part}": random.integers(-(2**14), 2**14, size) for part, size in sizes.items()}
        units["attribute_centre"] = random.integers(0, 2**14, 3)
        made = behaviour.BehaviourModel(
            "behaviour-1", "tabular", shape, CLASSES, [], [], window=window, units=units
        )
        return behaviour.BehaviourModel(
            "behaviour-1", "tabular", shape, CLASSES, [], head(made.map.width), window=window, units=units
        )
    fixed = feature_map(named, "tabular" if len(shape) == 1 else "image", shape)
    first = centre(random.integers(-99, 99, fixed.width), 3, bias=fixed.bias)
    size = fixed.width + (fixed.bias > 0)
    steps = [first, Whiten(random.integers(-(2**12), 2**12, (size, size)).astype(np.int64))]
    return Model(named, "tabular" if len(shape) == 1 else "image", shape, CLASSES, steps, head(size))


def network(name: str, shape: tuple[int, ...], changes: dict[str, Any] | None = None) -> NetworkModel:
    """A network with its first weights."""
    state = {
        part: value.numpy() for part, value in build(name, shape, len(CLASSES), seed=3).state_dict().items()
    }
    kind = "tabular" if len(shape) == 1 else "image"
    return NetworkModel("", kind, shape, CLASSES, [], [], network=name, state={**state, **(changes or {})})


def head(width: int) -> list[Any]:
    """Two dense layers."""
    random = np.random.default_rng(8)
    sizes = ((width, 5), (5, len(CLASSES)))
    return [(random.standard_normal(size), random.standard_normal(size[1])) for size in sizes]


def records(shape: tuple[int, ...], n: int) -> Any:
    """Random encoded records."""
    random = np.random.default_rng(9)
    return (
        random.integers(0, 256, (n, *shape)).astype(np.uint8)
        if len(shape) == 3
        else random.random((n, *shape))
    )


__all__ = ["CLASSES", "KINDS", "NETWORKS", "head", "model", "network", "records"]
