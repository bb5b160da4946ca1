"""Training from released coefficients.

Everything here is post-processing: no record, no budget, no limit on epochs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ParamsError
from airlock.inside.digests import sha256_json
from airlock.inside.manifest import Manifest
from airlock.models.descent import STEPS_AN_EPOCH, Build
from airlock.models.features.projection import steps_of
from airlock.models.features.quantiles import step_of
from airlock.models.features.rows import LIMIT
from airlock.models.model import Layers, Model
from airlock.models.moments import Moments, Tensors, choose_damping, closed_form, moments_of, ridge_path
from airlock.models.numbers import line
from airlock.models.temperature import temperature
from airlock.params import TrainParams
from stages.mechanisms import Trained
from stages.open.training_state import TrainingState

PATIENCE = 20
"""Of `train.method: auto`, where none is set."""


def train(
    params: TrainParams, release: Manifest, tensors: Tensors, *, checkpoint: Path | None = None
) -> Trained:
    """Train from the release's moments: in closed form, or by gradient descent on samples of the
    class-conditional model.
    """
    start = time.perf_counter()
    check_offered(params, release)
    layers, curve, ridge = head(params, release, tensors, checkpoint=checkpoint)
    drawn = len(curve) * STEPS_AN_EPOCH * params.batch
    speed = {} if solved(params) else {"rows_per_second": round(drawn / (time.perf_counter() - start))}
    told = {"ridge": ridge, **speed}
    if params.method == "auto" and params.network is None:
        return further(
            params, release, tensors, trained_of(release, tensors, layers, curve, told), checkpoint
        )
    epochs = 0 if solved(params) else curve[-1][0]
    return trained_of(release, tensors, layers, curve, told, epochs=epochs)


def solved(params: TrainParams) -> bool:
    """Whether the head is solved for, at least to begin with."""
    return params.method != "sgd" and params.network is None


def further(
    params: TrainParams, release: Manifest, tensors: Tensors, begun: Trained, checkpoint: Path | None
) -> Trained:
    """Train on from a linear head by gradient descent on samples, and keep what comes of it only if it makes the
    release likelier by more than chance: by two standard errors, on samples that neither has seen.
    """
    if "number" in release.details or len(begun.model.layers) != 1:
        return begun
    from airlock.models.descent import Sampler, descend, identity, likelihoods

    moments = moments_of(tensors, release.details, release.details["data"]["n"])
    ridge = choose_damping(moments, params.ridge)
    (weights, offset), name = begun.model.layers[0], identity(params, moments, ridge)
    asked = params.model_copy(update={"patience": params.patience or PATIENCE})
    keeper = TrainingState(checkpoint, sha256_json([name, weights.tobytes().hex()]))
    layers, curve = descend(asked, moments, ridge, keeper=keeper, start=weights)
    source = Sampler(moments, ridge, "cpu")
    before = likelihoods(weights, offset, source)
    gained = before - likelihoods(np.asarray(layers[0][0]), np.asarray(layers[0][1]), source)
    sure = float(gained.mean()) > 2 * float(gained.std(ddof=1)) / len(gained) ** 0.5
    metrics = {**begun.metrics, "likelihood_gained": float(gained.mean())}
    if not sure:
        return replace(begun, metrics=metrics)
    path = [(0, float(before.mean())), *curve]
    return Trained(
        replace(begun.model, layers=list(layers)),
        path,
        {**metrics, "loss": path[-1][1], "epochs": path[-1][0]},
    )


def head(
    params: TrainParams, release: Manifest, tensors: Tensors, *, checkpoint: Path | None = None
) -> tuple[Layers, Sequence[tuple[int, float]], float | None]:
    """The layers on top of the released rows, the learning curve, and the ridge (None: the spectrum was
    cleaned).
    """
    moments = moments_of(tensors, release.details, release.details["data"]["n"])
    ridge = choose_damping(moments, params.ridge)
    if solved(params):
        if params.head != "linear":
            raise ParamsError("params.yaml: train.head mlp has no closed form: set train.method to sgd")
        weights = closed_form(moments, ridge)
        if "number" not in release.details:
            weights = weights * _sureness(moments, weights, release, ridge)
        return [(weights, np.zeros(weights.shape[1]))], ridge_path(moments, ridge), ridge
    from airlock.models.descent import descend, identity

    return *descend(
        params,
        moments,
        ridge,
        build=network_named(params.network),
        keeper=TrainingState(checkpoint, identity(params, moments, ridge)),
    ), ridge


def check_offered(params: TrainParams, release: Manifest) -> None:
    """Refuse heads that are trained on samples of classes, where the label is a number.

    Raises:
        ParamsError: with what to set instead.
    """
    asked = params.method == "sgd" or params.head != "linear" or params.network is not None
    if "number" in release.details and asked:
        raise ParamsError(
            "params.yaml: the label is a number, which has no classes to draw samples of: set train.method to "
            "closed-form, train.head to linear and train.network to null"
        )


def _sureness(
    moments: Moments, weights: NDArray[np.float64], release: Manifest, ridge: float | None
) -> float:
    """The factor that makes scores probabilities; 1 for machines whose rows are not of one norm."""
    if "bias" not in release.details:
        return 1.0
    noise = float(release.details["sums"]["cross"]["scale"]) / (LIMIT * weights.shape[1])
    return temperature(moments, weights, noise=noise, ridge=ridge, bias=release.details["bias"] > 0)


def network_named(name: str | None) -> Build | None:
    """The class of stages/open that params.yaml names.

    Raises:
        ParamsError: there is none.
    """
    import importlib

    if name is None:
        return None
    module, _, last = name.partition(":")
    try:
        found: Build = getattr(importlib.import_module(module), last)
    except (ImportError, AttributeError):
        raise ParamsError(
            f"params.yaml: train.network '{name}' is not there: write the class in stages/open, and add its file to "
            "the deps of train in dvc.yaml"
        ) from None
    return found


def trained_of(
    release: Manifest,
    tensors: Tensors,
    layers: Layers,
    curve: Sequence[tuple[int, float]],
    metrics: Mapping[str, Any],
    *,
    epochs: int = 0,
) -> Trained:
    """A head on the released steps, as a model; a closed form takes no epochs."""
    data, details = release.details["data"], release.details
    steps = steps_of(tensors, details["bias"])
    number = tuple(details["number"]) if "number" in details else None
    if number:
        factor, offset = line(number, details["level"])
        layers = [(layers[0][0] * factor, np.array([offset]))]
    model = Model(
        details["features"],
        data["kind"],
        tuple(data["shape"]),
        tuple(data["labels"]),
        steps,
        layers,
        number=number,
        before=step_of(tensors),
    )
    return Trained(
        model,
        curve,
        {"loss": curve[-1][1], "epochs": epochs, "epsilon": release.proven.epsilon, **metrics},
    )
