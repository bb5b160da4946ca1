"""A trained model as a value: feature map, released steps, head.

Predicting needs nothing else, and no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.models.bounds import check_data, check_floats, check_number
from airlock.models.features import quantiles
from airlock.models.features.features import FeatureMap, feature_map
from airlock.models.features.projection import Step, check_steps, steps_of, tensors_of
from airlock.models.features.quantiles import Quantiles
from airlock.models.features.rows import LIMIT

Tensors = Mapping[str, NDArray[Any]]
Layers = Sequence[tuple[NDArray[np.float64], NDArray[np.float64]]]
Scorer = Callable[[NDArray[Any]], NDArray[np.float64]]
"""From a batch of encoded records to their scores."""
BATCH = 1024
NO_ANSWER = -1


@dataclass(frozen=True)
class Model:
    """A classifier, or (with `number`) a regression.

    Attributes:
        features: name of the feature map.
        kind: of data, "tabular" or "image".
        shape: of one encoded record.
        labels: class names, in order of the logits.
        steps: released steps between feature map and head.
        layers: weight and offset of each dense layer; a rectifier stands between two.
        document: anything else that describes it (schema, release, training), kept in model.json.
        before: step before the feature map: numbers through their released quantiles.
        number: bounds of a label that is a number, whose one score is the number itself; None of classes.
    """

    features: str
    kind: str
    shape: tuple[int, ...]
    labels: tuple[str, ...]
    steps: Sequence[Step]
    layers: Layers
    document: Mapping[str, Any] = field(default_factory=dict)
    number: tuple[float, float] | None = None
    before: Quantiles | None = None

    @property
    def map(self) -> FeatureMap:
        return feature_map(self.features, self.kind, self.shape)

    @property
    def record_shape(self) -> tuple[int, ...]:
        """Shape of a record as it is sealed; not its own for a model of another target than the label."""
        return self.shape

    def judged(
        self, records: NDArray[Any], labels: NDArray[np.int32]
    ) -> tuple[NDArray[Any], NDArray[np.int32]]:
        """Sealed records as the model takes them, and the right answers."""
        return records, labels

    def expected(self, records: NDArray[Any]) -> NDArray[np.float64] | None:
        """The expected value of a target that is a number; None of a class."""
        return None if self.number is None else np.clip(self.logits(records)[:, 0], *self.number)

    def scorer(self) -> Scorer:
        """What gives a batch its scores, made ready once."""
        transform = self.map

        def scores(records: NDArray[Any]) -> NDArray[np.float64]:
            valid = np.ones(len(records), np.uint8)
            rows = transform(self.before(records) if self.before else records, valid)
            for step in self.steps:
                rows = step(rows, valid)
            return forward(rows / LIMIT, self.layers)

        return scores

    def logits(self, records: NDArray[Any]) -> NDArray[np.float64]:
        """Scores of encoded records, (n, classes), a batch at a time."""
        scores = self.scorer()
        parts = [scores(records[start : start + BATCH]) for start in range(0, len(records), BATCH)]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.labels)))

    def predict(self, records: NDArray[Any]) -> NDArray[np.int64]:
        """Index of the likeliest class of each record."""
        indices: NDArray[np.int64] = self.logits(records).argmax(axis=1)
        return indices

    def predict_alone(self, records: NDArray[Any]) -> NDArray[np.int64]:
        """The same, each record by itself; NO_ANSWER where it has no scores."""
        scores = self.scores_alone(records)
        answered = np.isfinite(scores).all(axis=1)
        indices: NDArray[np.int64] = np.where(answered, np.nan_to_num(scores).argmax(axis=1), NO_ANSWER)
        return indices

    def scores_alone(self, records: NDArray[Any]) -> NDArray[np.float64]:
        """Scores of each record by itself: a function of that record, bit for bit, whatever the model is made
        of.

        In a batch the number of rows decides in which order a library adds them up. A record on which the
        arithmetic fails, or whose scores are not finite, has a row of NaN; failing aloud would tell something
        about it.
        """
        scores = self.scorer()
        found = [_scores(scores, records[place : place + 1].copy()) for place in range(len(records))]
        width = max((len(one) for one in found if one is not None), default=len(self.labels))
        return np.array([np.full(width, np.nan) if one is None else one for one in found]).reshape(-1, width)

    def check(self) -> None:
        """Look at every type, shape and range, so that no record finds out.

        Raises:
            ValueError, ArithmeticError, ParamsError: this is no model.
        """
        check_data(self.kind, self.shape, self.labels)
        check_number(self.number, self.labels)
        if self.before:
            self.before.check(self.shape[0] if self.kind == "tabular" else 0)
        check_layers(self.layers, check_steps(self.steps, self.map.width), len(self.labels))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """For model.safetensors."""
        dense = {
            f"layer{index}.{name}": value
            for index, pair in enumerate(self.layers)
            for name, value in zip(("weight", "offset"), pair, strict=True)
        }
        return {**tensors_of(self.steps), **quantiles.tensors_of(self.before), **dense}

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
            **({"number": list(self.number)} if self.number else {}),
        }


def model_of(document: Mapping[str, Any], tensors: Tensors) -> Model:
    """The inverse of `describe` and `tensors`."""
    if "network" in document:
        from airlock.models.classifier import network_model

        return network_model(document["network"], document, tensors, document)
    if "filters1" in tensors:
        from airlock.models.papers.patches import learned_model

        return learned_model(document, tensors)
    if "bins" in document:
        from airlock.models.binned import binned_model

        return binned_model(document, tensors)
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
        tuple(document["number"]) if document.get("number") else None,
        quantiles.step_of(tensors),
    )


def forward(rows: NDArray[np.float64], layers: Layers) -> NDArray[np.float64]:
    """Dense layers with rectifiers between them."""
    for index, (weight, offset) in enumerate(layers):
        rows = (np.maximum(rows, 0.0) if index else rows) @ weight + offset
    return rows


def check_layers(layers: Layers, width: int, classes: int) -> None:
    """Dense layers from rows of `width` to scores of `classes`.

    Raises:
        ValueError: they do not fit together, or are not finite.
    """
    if not layers:
        raise ValueError("a model has at least one layer")
    for weight, offset in layers:
        check_floats(weight, (width, *weight.shape[1:2]))
        width = weight.shape[1]
        check_floats(offset, (width,))
    if width != classes:
        raise ValueError("the last layer has one score per class")


def _scores(scores: Scorer, record: NDArray[Any]) -> NDArray[np.float64] | None:
    try:
        with np.errstate(all="ignore"):
            found = scores(record)[0]
    except Exception:  # whatever it is, it is a property of one record
        return None
    return found if bool(np.isfinite(found).all()) else None
