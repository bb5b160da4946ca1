"""Airlock: train models on sensitive records without letting the training code near them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airlock.api import Model, load
    from airlock.workspaces.steps import Plan, Released, plan, release, train

_PLACES = {
    "airlock.api": ("Model", "load"),
    "airlock.workspaces.steps": ("Plan", "Released", "plan", "release", "train"),
}
__all__ = ["Model", "Plan", "Released", "load", "plan", "release", "train"]


def __getattr__(name: str) -> Any:
    """The Python interface, imported when it is asked for: commands and confined stages need none of it."""
    from importlib import import_module

    for place, names in _PLACES.items():
        if name in names:
            return getattr(import_module(place), name)
    raise AttributeError(f"module 'airlock' has no attribute '{name}'")
