"""DVC as the tool starts it: on a pipeline that was checked first, and with its notes where nobody else can write.

DVC keeps notes about files (hashes, links that it made) in a folder of the whole machine, /var/tmp/dvc, which every
user may write to, and reads some of them with pickle. Whoever exchanges them there runs code as the owner at the next
`dvc pull` or `dvc checkout`. So they are kept in AIRLOCK_HOME instead: by the environment of every DVC that is started
here, and by .dvc/config.local for those that the owner starts.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

from airlock.errors import BoundaryError
from airlock.evidence import zones
from airlock.evidence.dvc_settings import LOCAL
from airlock.evidence.revisions import Workspace, load_graph, unfollowed
from airlock.owner.home import IDENTITY, Project, project
from airlock.run import paths

VARIABLE, SECTION, OPTION = "DVC_SITE_CACHE_DIR", "core", "site_cache_dir"


def command(*arguments: str) -> list[str]:
    """What starts DVC; a file of the workspace that is called like a module is none."""
    return [sys.executable, "-P", "-m", "dvc", *arguments]


def environment(workspace: Path, notes: Path | None = None) -> dict[str, str]:
    """Of a DVC that is started here, with its notes in the project's own folder or in another; one's own choice of a
    folder counts. Where AIRLOCK_HOME was moved, the owner's own DVC is told: it may not start otherwise.
    """
    here = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    if not notes and not (workspace / IDENTITY).exists():
        notes = Path(os.devnull)  # this is no workspace: DVC says so, or stops
    if not notes:
        place = project(workspace)
        keep_notes(place, workspace)
        notes = _notes(place)
    return {VARIABLE: str(notes), **os.environ, "PATH": here}


def check(workspace: Path, *arguments: str) -> None:
    """Refuse to start DVC on what was not looked at; where it would run stages, on what goes around the runner too.

    Raises:
        BoundaryError: naming it.
    """
    for problem in unfollowed(Workspace(workspace)):
        raise BoundaryError(problem)
    if arguments[:1] == ("repro",):
        zones.check(load_graph(workspace))


def run(
    workspace: Path,
    *arguments: str,
    quiet: bool = False,
    errors_only: bool = False,
    notes: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run DVC after a `check`; with `quiet` what it says is kept for the caller, with `errors_only` only errors are
    heard.
    """
    check(workspace, *arguments)
    return subprocess.run(
        command(*arguments),
        cwd=workspace,
        env=environment(workspace, notes),
        stdout=subprocess.PIPE if quiet else subprocess.DEVNULL if errors_only else None,
        stderr=subprocess.PIPE if quiet else None,
        text=True,
        check=False,
    )


def keep_notes(place: Project, workspace: Path) -> None:
    """Tell the owner's own DVC, once, to keep its notes in AIRLOCK_HOME; what somebody has set stays. (Not where that
    has letters in its name that DVC reads and cannot write again: every `dvc remote modify --local` would fail.)

    Raises:
        BoundaryError: .dvc/config.local is a link.
    """
    if VARIABLE in os.environ or not (workspace / ".dvc").is_dir() or ".dvc" in workspace.parts:
        return
    from configobj import ConfigObj, ConfigObjError  # type: ignore[import-untyped]

    text, told = paths.read_text(workspace, LOCAL) or "", str(place.dvc)
    try:
        settings: Any = ConfigObj(text.splitlines())
        section = settings.setdefault(SECTION, {})
        present = section.get(OPTION)
        if present == told or (present and Path(present).parts[-2:] != place.dvc.parts[-2:]):
            return  # somebody's own choice; ours of before AIRLOCK_HOME was moved is followed by the new one
        if told.isascii() and told.isprintable() and "%(" not in told:
            section[OPTION] = str(_notes(place))
        elif present:
            del section[OPTION]
        else:
            return
        lines = settings.write()
    except (ConfigObjError, TypeError, AttributeError):
        return  # DVC itself says what is wrong with it
    mode = stat.S_IMODE((workspace / LOCAL).stat().st_mode) if text else 0o600
    paths.write(workspace, LOCAL, ("\n".join(lines) + "\n").encode(), mode=mode)


def _notes(place: Project) -> Path:
    """Made by us: DVC would make it, and whatever is missing above it, for everybody to write to."""
    place.dvc.mkdir(mode=0o700, exist_ok=True)
    return place.dvc
