"""release.options of `dp-mac`: every setting of the paper and of
the authors' program, and presets for both.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field

from airlock.errors import ParamsError
from airlock.params import Section


class Options(Section):
    """None means the preset's value.

    Attributes:
        preset: `paper-...` is Table 2; `authors-...` is what the authors' program says about itself
            (docs/errata/dp-mac.md).
        task: fit labels (logistic outputs) or the records themselves (autoencoder).
        units: softplus in every layer without biases, as in the paper; or rectifiers, biases and linear
            outputs, as in the program.
        sigma: noise over sensitivity of a step; `paper`: the preset's for the claimed epsilon; `auto`: what
            epsilon really allows.
        order: of the Taylor expansion. threshold, threshold_second: T_b^max and T_C^max.
        thresholds: learned by phases 1 and 2, or the largest for every layer, at no cost.
        bound_z, bound_w: T_z and T_w.
        decay, decay_epochs: the rate is multiplied by `decay` after each epoch, so many times less one.
        projection: principal directions to keep, from a noisy covariance; projection_sigma: its noise over
            its sensitivity.
        initial: weights from N(0, 1 / inputs) or N(0, 2 / (inputs + outputs)).
        z_optimiser: not in the paper; the program has Adam.
    """

    preset: Literal["paper-mnist", "paper-usps", "authors-mnist", "authors-usps"] | None = None
    task: Literal["classify", "reconstruct"] | None = None
    units: Literal["softplus", "relu"] | None = None
    hidden: tuple[Annotated[int, Field(ge=1, le=2**13)], ...] | None = Field(None, max_length=16)
    epochs: float | None = Field(None, gt=0, le=1e5)
    batch: int | None = Field(None, ge=1)
    learning_rate: float | None = Field(None, gt=0, le=1e3)
    decay: float | None = Field(None, gt=0, le=1)
    decay_epochs: int | None = Field(None, ge=1)
    z_rate: float | None = Field(None, gt=0, le=1e3)
    z_steps: int | None = Field(None, ge=1, le=10_000)
    w_steps: int = Field(1, ge=1, le=1000)
    threshold: float | None = Field(None, ge=1e-6, le=1e6)
    threshold_second: float | None = Field(None, ge=1e-6, le=1e6)
    bound_z: float | None = Field(None, gt=0, le=1e6)
    bound_w: float | None = Field(None, gt=0, le=1e6)
    sigma: Literal["auto", "paper"] | Annotated[float, Field(ge=1e-2, le=1e6)] | None = None
    histogram_sigma: float = Field(20.0, ge=1e-2, le=1e6)
    bins: int = Field(20, ge=1, le=10_000)
    pretraining_epochs: float = Field(1.0, gt=0, le=1e5)
    thresholds: Literal["learned", "fixed"] | None = None
    projection: int | None = Field(None, ge=1)
    projection_sigma: float = Field(8.0, ge=1e-2, le=1e6)
    order: Literal[1, 2] = 1
    allocation: Literal["even", "sharp"] | None = None
    initial: Literal["scaled", "glorot"] | None = None
    z_optimiser: Literal["adam", "sgd"] = "adam"
    device: str = "auto"


PAPER: dict[str, Any] = {
    "units": "softplus",
    "decay": 0.9,
    "thresholds": "learned",
    "allocation": "even",
    "initial": "scaled",
}
PROGRAM: dict[str, Any] = {
    "units": "relu",
    "z_steps": 30,
    "thresholds": "fixed",
    "allocation": "even",
    "initial": "glorot",
}
PRESETS: dict[str | None, dict[str, Any]] = {
    None: PAPER
    | {
        "task": "classify",
        "hidden": (100,),
        "epochs": 10,
        "batch": 50,
        "learning_rate": 0.003,
        "z_rate": 0.01,
        "z_steps": 20,
        "threshold": 0.1,
        "threshold_second": 0.1,
        "bound_z": 30.0,
        "bound_w": 30.0,
        "sigma": "auto",
        "allocation": "sharp",
    },
    "paper-mnist": PAPER
    | {
        "task": "classify",
        "hidden": (300, 100),
        "epochs": 20,
        "batch": 50,
        "learning_rate": 0.003,
        "z_rate": 0.01,
        "z_steps": 20,
        "threshold": 0.1,
        "threshold_second": 0.1,
        "bound_z": 30.0,
        "bound_w": 30.0,
        "sigma": "paper",
    },
    "paper-usps": PAPER
    | {
        "task": "reconstruct",
        "hidden": (300, 100, 20, 100, 300),
        "epochs": 20,
        "batch": 50,
        "learning_rate": 0.001,
        "z_rate": 0.02,
        "z_steps": 30,
        "threshold": 0.01,
        "threshold_second": 0.01,
        "bound_z": 12.5,
        "bound_w": 20.0,
        "sigma": "paper",
    },
    # The program clips twice b_k, so its thresholds are halved; it has no bounds, and these are out of reach.
    "authors-mnist": PROGRAM
    | {
        "task": "classify",
        "hidden": (300,),
        "epochs": 30,
        "batch": 1000,
        "learning_rate": 0.01,
        "decay": 0.95,
        "decay_epochs": 20,
        "z_rate": 0.003,
        "threshold": 0.15,
        "bound_z": 1e3,
        "bound_w": 1e3,
        "sigma": "paper",
        "projection": 60,
    },
    "authors-usps": PROGRAM
    | {
        "task": "reconstruct",
        "hidden": (300, 100, 20, 100, 300),
        "epochs": 50,
        "batch": 500,
        "learning_rate": 0.003,
        "decay": 0.97,
        "z_rate": 0.001,
        "threshold": 0.0005,
        "bound_z": 1e3,
        "bound_w": 1e3,
        "sigma": "paper",
    },
}
CLAIMED_SETTINGS: dict[str, dict[float, dict[str, Any]]] = {
    "paper-mnist": {0.5: {"sigma": 5.8}, 2.0: {"sigma": 1.7}},
    "paper-usps": {1.0: {"sigma": 12.1}, 2.0: {"sigma": 5.2}, 4.0: {"sigma": 3.0}, 8.0: {"sigma": 2.2}},
    "authors-mnist": {
        0.5: {
            "sigma": 4.4,
            "projection_sigma": 16.0,
            "epochs": 10,
            "batch": 500,
            "learning_rate": 0.03,
            "decay": 0.7,
            "decay_epochs": 7,
            "z_rate": 0.01,
        },
        2.0: {"sigma": 2.8, "projection_sigma": 8.0},
        8.0: {"sigma": 1.0, "projection_sigma": 4.0},
    },
    "authors-usps": {
        1.0: {"sigma": 7.8, "batch": 250},
        2.0: {"sigma": 4.1, "batch": 250},
        4.0: {"sigma": 3.1},
        8.0: {"sigma": 1.8},
    },
}
"""What goes with each claimed epsilon.

Table 2 lists sigma without epsilon: a larger sigma is taken to go with a smaller epsilon.
"""


def settle(given: Options, epsilon: float) -> Options:
    """Every None filled in: from the claimed epsilon that is nearest, then from the preset.

    Raises:
        ParamsError: sigma is to be the paper's, which has none for this epsilon.
    """
    named = CLAIMED_SETTINGS.get(str(given.preset), {})
    nearest = named[min(named, key=lambda one: abs(math.log(one / epsilon)))] if named else {}
    values = {**PRESETS[given.preset], **{name: value for name, value in nearest.items() if name != "sigma"}}
    missing = {
        name: value
        for name, value in values.items()
        if name not in given.model_fields_set or getattr(given, name) is None
    }
    options = given.model_copy(update=missing)
    if options.sigma == "paper" and epsilon not in named:
        known = f"release.epsilon {', '.join(f'{one:g}' for one in named)}" if named else "presets"
        raise ParamsError(
            f"params.yaml: release.options.sigma 'paper' is known for {known} only: use sigma auto"
        )
    return options


def published_sigma(options: Options, epsilon: float) -> float:
    """The preset's for a claimed epsilon that it has."""
    return float(CLAIMED_SETTINGS[str(options.preset)][epsilon]["sigma"])
