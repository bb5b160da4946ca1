"""release.options of AdLM and ILM: presets, and what each of them has for what is not given.

stages/release/papers/adlm/adlm.py tells the presets apart.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from airlock.errors import ParamsError
from airlock.params import Params, Section, check
from airlock.privacy.plan import Facts

Sensitivity = Literal["literal", "fan-in", "one-map", "pooled-map", "tight"]


class Options(Section):
    """release.options of `adlm` and `ilm`. None means the preset's value.

    Attributes:
        sensitivity: the reading of Delta_h0 (docs/proofs/adlm.md#inputs); `tight` is what is needed, and sets
            the other two as well.
        noise: drawn for each record, or once for a batch (public data only: it protects no row).
        network: that relevance goes through: `public` (random, data-free), `released` (trained by DP-SGD,
            charged), `raw` (no proof); None is relevance.network, and if that is auto, the preset's.
        allocation: beta from |R| (Eq. 16), or from the rescaled mean, without a proof: its fourth power, clamped
            before the noise, of which the size counts; or floored after it, and of raw relevances that start from
            all outputs (the authors' program for grey images); or raised by 0.3, and by as much again in the middle
            (their program for colour images, which takes the channels of a pixel together).
        coefficients: noise on all three orders (line 18), or only on the one that depends on the record.
        label_noise: on the coefficients of records or batches, or (the programs for images, no proof) one
            matrix for the whole training, beside labels as they are; it comes with the program's network, and
            for colour images with one noise image for all records.
        pixels: in [0, 1], or (`signed`, the program for grey images) in [-1, 1], so that its noise is half as large
            beside them.
        scaling: x in [0, 1], or divided by sqrt d as Sec. II has it.
        budget: shares of epsilon for relevance, inputs and labels; (0.1, 0.6, 0.3) in the program for colour
            images where none are given.
        batch: |L|. clip: of the perturbed inputs, by the trainer.
    """

    preset: Literal["paper-literal", "authors-code", "sound"] = "sound"
    sensitivity: Sensitivity | None = None
    noise: Literal["record", "batch"] | None = None
    network: Literal["public", "released", "raw"] | None = None
    allocation: Literal["absolute", "clamped", "floored", "raised"] | None = None
    coefficients: Literal["all", "labels"] | None = None
    label_noise: Literal["coefficients", "matrix"] | None = None
    pixels: Literal["unit", "signed"] | None = None
    scaling: Literal["unit", "norm"] = "unit"
    budget: tuple[float, float, float] = (0.25, 0.25, 0.5)
    batch: int | None = Field(None, ge=1)
    clip: float = Field(10.0, gt=0, le=1e6)
    relevance_records: int | None = Field(None, ge=1)
    stabiliser: float = Field(1.0, ge=1e-9, le=1e6)
    pretraining_epochs: int = Field(12, ge=1, le=10_000)


PRESETS: dict[str, dict[str, str]] = {
    "paper-literal": {
        "sensitivity": "literal",
        "noise": "record",
        "network": "raw",
        "allocation": "absolute",
        "coefficients": "all",
    },
    "authors-code": {
        "sensitivity": "pooled-map",
        "noise": "batch",
        "network": "raw",
        "allocation": "clamped",
        "coefficients": "labels",
    },
    "sound": {
        "sensitivity": "tight",
        "noise": "record",
        "network": "public",
        "allocation": "absolute",
        "coefficients": "labels",
    },
}
COLOUR_DEFAULTS: dict[str, Any] = {"allocation": "raised", "budget": (0.1, 0.6, 0.3)}
"""What the program for colour images has in the place of the preset's and the default."""
GREY_DEFAULTS: dict[str, Any] = {"allocation": "floored", "pixels": "signed"}
"""The same of the program for grey images."""
BATCHES = {1: 1800, 3: 7200}


def in_colour(facts: Facts) -> bool:
    """Whether records are colour images."""
    return facts.kind == "image" and facts.shape[2] == 3


def settle(params: Params, facts: Facts) -> Options:
    """What is given, and the preset's values for the rest.

    Raises:
        ParamsError: what only an authors' program has is asked for where there is no such program.
    """
    given = check(Options, params.release.options, "params.yaml: release.options")
    preset: dict[str, Any] = {**PRESETS[given.preset], "pixels": "unit"}
    if params.relevance.network != "auto":
        preset["network"] = params.relevance.network
    noise = given.noise or preset["noise"]
    preset["label_noise"] = _label_noise(given, str(noise), facts)
    colour = in_colour(facts) if preset["label_noise"] == "matrix" else None
    preset |= {None: {}, True: COLOUR_DEFAULTS, False: GREY_DEFAULTS}[colour]
    _check_program(given, colour)
    missing = {name for name in preset if name not in given.model_fields_set or getattr(given, name) is None}
    return given.model_copy(update={name: preset[name] for name in missing})


def _check_program(given: Options, colour: bool | None) -> None:
    """Whether what is asked for is of this program: for colour images, for grey ones, or of none.

    Raises:
        ParamsError: it is not.
    """
    asked = (
        ("allocation", "raised", True, "absolute or clamped"),
        ("allocation", "floored", False, "absolute or clamped"),
        ("pixels", "signed", False, "unit"),
    )
    for name, value, whose, instead in asked:
        if getattr(given, name) == value and colour is not whose:
            kind = "colour" if whose else "grey"
            raise ParamsError(
                f"params.yaml: release.options.{name} '{value}' is of the authors' program for {kind} images: use "
                f"{instead}"
            )


def _label_noise(given: Options, noise: str, facts: Facts) -> str:
    """Where label noise goes; the programs are for images, with noise that records share.

    Raises:
        ParamsError: a matrix is asked for where there is no such program.
    """
    image = facts.kind == "image" and facts.shape[2] in BATCHES
    if given.label_noise == "matrix" and not (image and noise == "batch"):
        raise ParamsError(
            "params.yaml: release.options.label_noise 'matrix' is of the authors' programs for images with "
            "noise 'batch': use coefficients"
        )
    if given.label_noise is not None:
        return given.label_noise
    program = given.preset == "authors-code" and noise == "batch" and image
    return "matrix" if program else "coefficients"
