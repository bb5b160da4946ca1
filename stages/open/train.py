"""The train stage: from a release to a model, without a record in sight."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from airlock.errors import ParamsError, ReleaseError
from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.models.model import Model
from airlock.storage import load_tensors, save_model, write_json, write_text
from stages import mechanisms
from stages.mechanisms import Trained
from stages.open import explanation

RELEASE, RELEVANCE, MODEL = "data/released/release", "data/released/relevance", "data/model"
METRICS, CURVE = "data/metrics/train.json", "data/plots/learning_curve.csv"


def main(room: Room) -> None:
    """Train from the release and write model, metrics and learning curve."""
    folder = room.path(RELEASE)
    release = manifest.load(folder)
    if not release.applies:
        raise ReleaseError("there is no release to train from: run `dvc repro release`")
    if room.params.train.target is not None and release.mechanism != "inputs":
        raise ParamsError(
            f"params.yaml: train.target needs a release of 'inputs', and this is one of '{release.mechanism}': "
            "it was made for the label alone"
        )
    _check_device(room.params.train.device)
    tensors = load_tensors(folder / "release.safetensors")
    trained = mechanisms.mechanism(release.mechanism, "open").train(
        room.params.train,
        release,
        tensors,
        checkpoint=room.paths.get("checkpoint"),
        **_needed(room, release),
    )
    earlier = [one for one in [manifest.load(room.path(RELEVANCE))] if one.applies]
    cost = manifest.total_epsilon([*earlier, release])
    metrics = (
        {**trained.metrics, "epsilon": "infinity" if math.isinf(cost) else cost}
        if earlier
        else trained.metrics
    )
    model = replace(trained.model, document=_document(room, release, trained))
    save_model(model, room.path(MODEL))
    found = explanation.explanation(model, room.params.train, release, tensors, _columns(model))
    if found is not None:
        explanation.write(found, room.path(MODEL) / explanation.FILE)
    write_json(room.path(METRICS), metrics)
    write_text(
        room.path(CURVE), "epoch,loss\n" + "".join(f"{epoch},{loss:.9g}\n" for epoch, loss in trained.curve)
    )


def _check_device(wanted: str) -> None:
    """Whether it is here, also where a mechanism has nothing left to train: `auto` and `cpu` always are.

    Raises:
        ParamsError: it is not.
    """
    if wanted not in ("auto", "cpu"):
        from airlock.models.devices import choose_device

        choose_device(wanted, "train.device")


def _needed(room: Room, release: manifest.Manifest) -> dict[str, Any]:
    """The schema, for a network that is trained on synthetic records of it."""
    asked = room.params.train
    if release.mechanism != "inputs" or (asked.network is None and asked.method != "sgd"):
        return {}
    from airlock.records.schema_file import load_schema

    return {"schema": load_schema(room.path(f"data/schemas/{room.params.dataset}.yaml"))}


def _document(room: Room, release: manifest.Manifest, trained: Trained) -> dict[str, Any]:
    """What model.json says besides shapes: where it comes from, and
    the schema that new records must follow.
    """
    return {
        "release": release.release_id,
        "mechanism": release.mechanism,
        "training": room.params.train.model_dump(),
        "schema": _schema(room, trained.model),
        "schema_sha256": release.details["data"]["schema"],
    }


def _columns(model: Model) -> list[str] | None:
    """Names of the encoded columns, of a table."""
    from airlock.records.encoding import encoded_columns
    from airlock.records.schema import Schema

    schema = Schema.model_validate(model.document["schema"])
    return encoded_columns(schema) if schema.kind == "tabular" else None


def _schema(room: Room, model: Model) -> dict[str, Any]:
    """The data set's schema; of a model for another target, one in which that is the label."""
    from airlock.records.schema import retargeted
    from airlock.records.schema_file import load_schema

    schema = load_schema(room.path(f"data/schemas/{room.params.dataset}.yaml"))
    if room.params.train.target is not None and room.params.train.target != schema.label.column:
        schema = retargeted(schema, room.params.train.target, model.labels)
    document: dict[str, Any] = schema.model_dump(mode="json")
    return document
