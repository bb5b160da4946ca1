"""The mechanisms: how to write one, and where each of them is.

A mechanism has two halves. The release half reads sealed records and perturbs; the open half trains from what was released.
To add one, write the two modules, add a line to `MECHANISMS`, and describe it in docs/papers.md or docs/mechanism.md.
"""

from __future__ import annotations

import difflib
import importlib
from typing import Any, NamedTuple

from airlock.errors import ParamsError


class Halves(NamedTuple):
    """The modules of one mechanism, by the room that they are in."""

    release: str
    open: str


def _own(release: str, train: str | None = None) -> Halves:
    return Halves(f"stages.release.mechanisms.{release}", f"stages.open.mechanisms.{train or release}")


def _paper(paper: str, release: str, train: str | None = None) -> Halves:
    return Halves(f"stages.release.papers.{paper}.{release}", f"stages.open.mechanisms.{train or release}")


MECHANISMS = {
    "coefficients": _own("coefficients"),
    "coefficients-iterated": _own("iterated"),
    "adlm": _paper("adlm", "adlm"),
    "ilm": _paper("adlm", "ilm", "adlm"),
    "dp-sgd": _paper("dp_sgd", "dp_sgd"),
    "optimized-noise": _paper("optimized_noise", "optimized_noise"),
    "ellipsoid-noise": _paper("optimized_noise", "ellipsoid_noise", "dp_sgd"),
    "dp-mac": _paper("dp_mac", "dp_mac", "dp_sgd"),
    "behaviour": _paper("pcdbn", "behaviour"),
    "behaviour-published": _paper("pcdbn", "behaviour_published"),
    "pcdbn": _paper("pcdbn", "pcdbn"),
    "patch-moments": _paper("pcdbn", "patch_moments"),
    "neuron-noise": _paper("neuron", "neuron_noise", "optimized_noise"),
    "neuron-allocation": _paper("neuron", "neuron_allocation"),
}


def mechanism(name: str, room: str = "release") -> Any:
    """The half of a mechanism that lives in `room` ("release" or "open")."""
    if name not in MECHANISMS:
        near = difflib.get_close_matches(name, MECHANISMS, n=1)
        hint = f", did you mean '{near[0]}'?" if near else f"; mechanisms: {', '.join(MECHANISMS)}"
        raise ParamsError(f"params.yaml: unknown release.mechanism '{name}'{hint}")
    return importlib.import_module(getattr(MECHANISMS[name], room))
