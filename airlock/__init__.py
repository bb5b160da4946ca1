"""Airlock: train models on sensitive records without letting the training code near them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airlock.api import Model, load

__all__ = ["Model", "load"]


def __getattr__(name: str) -> Any:
    """The Python interface, imported when it is asked for: commands and confined stages need none of it."""
    if name in __all__:
        from airlock import api

        return getattr(api, name)
    raise AttributeError(f"module 'airlock' has no attribute '{name}'")
