"""The relevance stage: a small earlier release that says which features matter (off by default)."""

from __future__ import annotations

from stages.boundary import manifest
from stages.boundary.room import Room
from stages.errors import ParamsError
from stages.params import Params
from stages.privacy.plan import Facts, Plan

RELEVANCE = "data/released/relevance"


def plans(params: Params, facts: Facts) -> dict[str, Plan]:
    """What would be released, priced."""
    if params.relevance.mode == "off":
        return {RELEVANCE: manifest.none_plan("relevance.mode is off")}
    raise ParamsError(f"params.yaml: relevance.mode '{params.relevance.mode}' is not built yet: use off")


def main(room: Room) -> None:
    """Make the release that was ordered; with mode off there is none."""
