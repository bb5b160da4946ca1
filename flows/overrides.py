"""Parameters of a flow run: checked like params.yaml, written there, and taken back if nothing was paid.

A run that fails, or is killed, before it has reserved anything leaves params.yaml as it was: otherwise the
next scheduled run would pay for it (airlock/run/param_changes.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from airlock.errors import ParamsError
from airlock.params import Params, check, load_params
from airlock.run import param_changes

Overrides = Mapping[str, Any]
FILE = param_changes.FILE
turn = param_changes.turn


def merged(workspace: Path, overrides: Overrides) -> Params:
    """params.yaml with `overrides` ({"release.epsilon": 0.5}) on top, checked; nothing is written.

    Raises:
        ParamsError: for params.yaml itself, or for an override, with the nearest valid key.
    """
    load_params(workspace / FILE)
    document = deepcopy(yaml.safe_load((workspace / FILE).read_text()) or {})
    param_changes.apply(document, overrides)
    return check(Params, document, "overrides")


def only(overrides: Overrides, section: str) -> None:
    """Refuse overrides outside `section`."""
    for key in overrides:
        if key.split(".")[0] != section:
            raise ParamsError(
                f"overrides: '{key}' belongs to the sensitive side: "
                f"a run on released data may change {section}.* only"
            )


@contextmanager
def written(workspace: Path, overrides: Overrides, new: Sequence[str]) -> Iterator[None]:
    """params.yaml with `overrides` in it, as `dvc exp run --set-param` writes them: git shows the difference.

    It stays so if the block ends well, or fails after one of the `new` outs was paid for; else it is undone.
    """
    if not overrides:
        yield
        return
    after = param_changes.text_with(workspace, overrides)
    with param_changes.changed(workspace, after, stays=True, unless_paid=new):
        yield
