"""What a reservation was made for, noted in AIRLOCK_HOME until it is committed: so that somebody who finds it
open can still make that very release (`airlock budget settle`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from airlock.errors import InputError
from airlock.owner.home import Project, write_private


@dataclass(frozen=True)
class Purpose:
    """What a release is made from, besides records and keys.

    Attributes:
        stage: its name in dvc.yaml.
        params: all of params.yaml, as it was.
        upstream: ids of the releases that it builds on, by out.
    """

    stage: str
    params: Mapping[str, Any]
    upstream: Mapping[str, str]


def note(project: Project, release_id: str, purpose: Purpose) -> None:
    """Write it down, before the reservation."""
    write_private(_place(project, release_id), json.dumps(asdict(purpose)).encode())


def forget(project: Project, release_id: str) -> None:
    """The release is committed, or was never reserved."""
    _place(project, release_id).unlink(missing_ok=True)


def purpose(project: Project, release_id: str) -> Purpose:
    """What a reservation was made for.

    Raises:
        InputError: an older Airlock reserved it, or another machine.
    """
    try:
        return Purpose(**json.loads(_place(project, release_id).read_text()))
    except (OSError, ValueError, TypeError):
        raise InputError(
            f"what release {release_id[:12]} was reserved for is not noted here: run `dvc repro` with its "
            "parameters, or book it as lost with --lost"
        ) from None


def _place(project: Project, release_id: str) -> Path:
    return project.folder / "reservations" / f"{release_id}.json"
