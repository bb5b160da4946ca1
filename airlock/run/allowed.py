"""Names that the runner believes: of stages, and of the places where outs may lie.

Lists of what is allowed, not of what is not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

STAGE_NAME = re.compile(r"[a-z][a-z0-9-]{0,63}")
# Where each zone's outs lie. A place that ends in "/" is a folder of such places: the out itself has one name
# more, at least.
OUT_PLACES = {
    "sensitive": ("data/sealed",),
    "release": ("data/released/",),
    "open": ("data/model", "data/metrics", "data/plots", "data/report", "data/open/"),
}
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
# What some program looks for and runs, or obeys, wherever it finds it.
_OBEYED = re.compile(
    r"(dvc\.(yaml|lock)|params\.yaml|.*\.dvc|gnumakefile|makefile|conftest\.py"
    r"|(site|user)customize\.py|__pycache__|.*\.(pth|pyc|pyo|so))",
    re.IGNORECASE,
)


def stage_problem(name: str) -> str:
    """Why a stage may not be called so, or nothing."""
    if STAGE_NAME.fullmatch(name):
        return ""
    return f"stage {name!r} has a name that is not plain: use lower-case letters, digits and '-', at most 64"


def out_problem(out: str, zone: str) -> str:
    """Why an out of a stage of this zone may not lie there, or nothing."""
    parts = out.split("/")
    if any(not _PLAIN.fullmatch(part) for part in parts) or any(map(is_obeyed, parts)):
        return f"its name is not plain: use letters, digits, '.', '_' and '-' (not {out!r})"
    if any(_lies_in(parts, place) for place in OUT_PLACES[zone]):
        return ""
    return (
        f"outs of {zone} stages lie in "
        f"{', '.join(place + 'NAME' if place[-1] == '/' else place for place in OUT_PLACES[zone])}"
    )


def is_obeyed(name: str) -> bool:
    """Whether some program outside the wall would run a file of this name, or take orders from it."""
    return name.startswith(".") or _OBEYED.fullmatch(name) is not None


def _lies_in(parts: Sequence[str], place: str) -> bool:
    folder = place.rstrip("/").split("/")
    return parts[: len(folder)] == folder and len(parts) >= len(folder) + place.endswith("/")
