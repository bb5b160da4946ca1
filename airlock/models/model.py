"""A trained model as a value: feature map, released steps, head. Predicting needs nothing else, and no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.features.features import FeatureMap, feature_map
from airlock.models.features.projection import Step, steps_of, tensors_of
from airlock.models.features.rows import LIMIT

Tensors = Mapping[str, NDArray[Any]]
Layers = Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]
BATCH = 1024


@dataclass(frozen=True)
class Model:
    """A classifier.

    Attributes:
        features: name of the feature map.
        kind: of data, "tabular" or "image".
        shape: of one encoded record.
        labels: class names, in order of the logits.
        steps: released steps between feature map and head.
        layers: weight and offset of each dense layer; a rectifier stands between two.
        document: anything else that describes it (schema, release, training), kept in model.json.
    """

    features: str
    kind: str
    shape: tuple[int, ...]
    labels: tuple[str, ...]
    steps: Sequence[Step]
    layers: Layers
    document: Mapping[str, Any] = field(default_factory=dict)

    @property
    def map(self) -> FeatureMap:
        return feature_map(self.features, self.kind, self.shape)

    def logits(self, records: NDArray[Any]) -> NDArray[np.float64]:
        """Scores of encoded records, (n, classes), a batch at a time."""
        transform = self.map
        parts = [
            self._logits(records[start : start + BATCH], transform) for start in range(0, len(records), BATCH)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.labels)))

    def _logits(self, records: NDArray[Any], transform: FeatureMap) -> NDArray[np.float64]:
        valid = np.ones(len(records), np.uint8)
        rows = transform(records, valid)
        for step in self.steps:
            rows = step(rows, valid)
        return forward(rows / LIMIT, self.layers)

    def predict(self, records: NDArray[Any]) -> NDArray[np.int64]:
        """Index of the likeliest class of each record."""
        indices: NDArray[np.int64] = self.logits(records).argmax(axis=1)
        return indices

    def tensors(self) -> dict[str, NDArray[Any]]:
        """For model.safetensors."""
        dense = {
            f"layer{index}.{name}": value
            for index, pair in enumerate(self.layers)
            for name, value in zip(("weight", "offset"), pair, strict=True)
        }
        return {**tensors_of(self.steps), **dense}

    def describe(self) -> dict[str, Any]:
        """For model.json."""
        return {
            **self.document,
            "version": 1,
            "features": self.features,
            "kind": self.kind,
            "shape": list(self.shape),
            "labels": list(self.labels),
            "layers": [list(weight.shape) for weight, _ in self.layers],
        }


def model_of(document: Mapping[str, Any], tensors: Tensors) -> Model:
    """The inverse of `describe` and `tensors`."""
    if "network" in document:
        from airlock.models.classifier import network_model

        return network_model(document["network"], document, tensors, document)
    if "filters1" in tensors:
        from airlock.models.papers.patches import learned_model

        return learned_model(document, tensors)
    if "window" in document:
        from airlock.models.papers.behaviour import behaviour_model

        return behaviour_model(document, tensors)
    shape = tuple(document["shape"])
    bias = feature_map(document["features"], document["kind"], shape).bias
    layers = [
        (tensors[f"layer{index}.weight"], tensors[f"layer{index}.offset"])
        for index in range(len(document["layers"]))
    ]
    steps = steps_of(tensors, bias) if "centre" in tensors else []
    return Model(
        document["features"],
        document["kind"],
        shape,
        tuple(document["labels"]),
        steps,
        layers,
        dict(document),
    )


def forward(rows: NDArray[np.float64], layers: Layers) -> NDArray[np.float64]:
    """Dense layers with rectifiers between them."""
    for index, (weight, offset) in enumerate(layers):
        rows = (np.maximum(rows, 0.0) if index else rows) @ weight + offset
    return rows
