"""Which module does what: stages to rooms, mechanisms to their two halves. Names only; nothing is imported until used."""

from __future__ import annotations

import difflib
import importlib
from types import ModuleType

from stages.errors import InputError, ParamsError
from stages.params import Params
from stages.privacy.plan import Facts, Plan

STAGES = {
    "ingest": "stages.sensitive.ingest",
    "relevance": "stages.release.relevance",
    "release": "stages.release.release",
    "evaluate-private": "stages.release.evaluate_private",
    "train": "stages.open.train",
    "evaluate": "stages.open.evaluate",
    "report": "stages.open.report",
}

# A mechanism's file has the same name in both rooms.
MECHANISMS = {
    "coefficients": "coefficients",
    "coefficients-iterated": "coefficients_iterated",
    "adlm": "adlm",
    "ilm": "ilm",
    "dp-sgd": "dp_sgd",
    "optimized-noise": "optimized_noise",
    "ellipsoid-noise": "ellipsoid_noise",
    "dp-mac": "dp_mac",
    "behaviour": "behaviour",
    "behaviour-published": "behaviour_published",
    "pcdbn": "pcdbn",
    "patch-moments": "patch_moments",
    "neuron-noise": "neuron_noise",
    "neuron-allocation": "neuron_allocation",
}


def stage_module(stage: str, own: str | None = None) -> str:
    """Dotted name of the module behind a stage; an open stage may bring `own`."""
    if own:
        return own
    if stage not in STAGES:
        raise InputError(f"stage '{stage}' has no module: name it in dvc.yaml (`meta: {{zone: open, module: NAME}}`)")
    return STAGES[stage]


def mechanism(name: str, room: str = "release") -> ModuleType:
    """The half of a mechanism that lives in `room` ("release" or "open")."""
    if name not in MECHANISMS:
        near = difflib.get_close_matches(name, MECHANISMS, n=1)
        hint = f", did you mean '{near[0]}'?" if near else f"; mechanisms: {', '.join(MECHANISMS)}"
        raise ParamsError(f"params.yaml: unknown release.mechanism '{name}'{hint}")
    return importlib.import_module(f"stages.{room}.{MECHANISMS[name]}")


def plans(stage: str, params: Params, facts: Facts) -> dict[str, Plan]:
    """What a release stage would release, priced, before anything is read: out path to plan."""
    module = importlib.import_module(stage_module(stage))
    priced: dict[str, Plan] = module.plans(params, facts)
    return priced
