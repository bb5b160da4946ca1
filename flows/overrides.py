"""Parameters of a flow run: checked like params.yaml, and written there only when everything about them is in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from airlock.errors import ParamsError
from airlock.params import Params, check, load_params

Overrides = Mapping[str, Any]


def merged(workspace: Path, overrides: Overrides) -> Params:
    """params.yaml with `overrides` ({"release.epsilon": 0.5}) on top, checked; nothing is written.

    Raises:
        ParamsError: for params.yaml itself, or for an override, with the nearest valid key.
    """
    load_params(workspace / "params.yaml")
    document = deepcopy(yaml.safe_load((workspace / "params.yaml").read_text()) or {})
    _apply(document, overrides)
    return check(Params, document, "overrides")


def write(workspace: Path, overrides: Overrides) -> None:
    """Edit params.yaml as `dvc exp run --set-param` does: values change, comments stay, git shows the difference."""
    if not overrides:
        return
    from dvc.utils.serialize import modify_yaml  # type: ignore[import-untyped]

    with modify_yaml(workspace / "params.yaml") as document:
        _apply(document, overrides)


def only(overrides: Overrides, section: str) -> None:
    """Refuse overrides outside `section`."""
    for key in overrides:
        if key.split(".")[0] != section:
            raise ParamsError(
                f"overrides: '{key}' belongs to the sensitive side: a run on released data may change {section}.* only"
            )


def _apply(document: dict[str, Any], overrides: Overrides) -> None:
    for key, value in overrides.items():
        *parents, last = _parts(key)
        place = document
        for parent in parents:
            place = place.setdefault(parent, {})
            if not isinstance(place, dict):
                raise ParamsError(f"overrides: '{key}' goes below a value: name a key of params.yaml")
        place[last] = value


def _parts(key: str) -> Iterator[str]:
    parts = key.split(".")
    if not all(parts):
        raise ParamsError(f"overrides: '{key}' is not a key: write it like release.epsilon")
    return iter(parts)
