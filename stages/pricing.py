"""What the release stages would make, priced.

The broker asks this behind the wall, before any record is read.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from airlock.inside.room import Room
from airlock.params import Params
from airlock.privacy.plan import Facts


def answer(room: Room) -> list[dict[str, Any]]:
    """For each question, stage to out to plan."""
    return [
        {stage: _plans(module, asked) for stage, module in asked["stages"].items()}
        for asked in room.facts["questions"]
    ]


def check_device(room: Room) -> bool:
    """Whether the device that a release is to be made on is here.

    Raises:
        ParamsError: it is not.
    """
    from airlock.models.devices import choose_device

    choose_device(str(room.facts["device"]), "release.options.device")
    return True


def check_encoder(room: Room) -> bool:
    """Whether the encoder that a release asks for is here, and one that can be used.

    Raises:
        InputError, ReleaseError: it is not.
    """
    from airlock.models.features import encoder

    encoder.look_in(room.paths)
    encoder.Encoder(str(room.facts["encoder"]), tuple(room.facts["shape"])).ready()
    return True


def _plans(module: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    params, facts = Params.model_validate(asked["params"]), Facts.from_json(asked["facts"])
    return {out: plan.to_json() for out, plan in importlib.import_module(module).plans(params, facts).items()}
