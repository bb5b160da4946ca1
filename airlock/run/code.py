"""Whose code runs inside the wall: where it starts, where it is imported from, and which module is behind
each stage.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from airlock.errors import InputError
from airlock.inside.digests import sha256_path

ENTRY = "airlock.inside"
STAGES = "stages"
MODULES = {
    "dataset": "stages.open.dataset",
    "ingest": "stages.sensitive.ingest",
    "relevance": "stages.release.relevance",
    "release": "stages.release.perturb",
    "evaluate-private": "stages.release.evaluate_private",
    "judged": "stages.open.judged",
    "train": "stages.open.train",
    "evaluate": "stages.open.evaluate",
    "report": "stages.open.report.report",
}
# All of the tool that a stage may import; the rest is not even there behind the wall.
INSIDE_FILES = (
    *("__init__.py", "errors.py", "files.py", "params.py", "storage.py"),
    *("attack", "compare", "inside", "models", "privacy", "records"),
)
TOOL = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Code:
    """What a confined process is made of.

    Attributes:
        entry: the module that it starts with (`python -m ENTRY`).
        folders: where modules are imported from, in this order.
        granted: the files and folders below them that it may read: the installed tool's.
        stages: names below the workspace that it may read besides: opened without links, and shown without
            compiled modules.
        modules: the module behind each stage that dvc.yaml gives none.
        declared: whether a stage of dvc.yaml is shown of these only what it declares: no receipt speaks of the rest,
            and a folder `train` would be imported in place of a declared `train.py`.
    """

    entry: str
    folders: tuple[Path, ...]
    granted: tuple[Path, ...]
    stages: tuple[str, ...]
    modules: Mapping[str, str]
    declared: bool = False

    def module_of(self, stage: str, own: str | None = None) -> str:
        """Dotted name of the module behind a stage; an open stage may bring its `own`."""
        if own:
            return own
        if stage not in self.modules:
            raise InputError(
                f"stage '{stage}' has no module: name it in dvc.yaml (`meta: {{zone: open, module: NAME}}`)"
            )
        return self.modules[stage]


def of_workspace(workspace: Path) -> Code:
    """The installed tool's own part, and the stages of the workspace."""
    granted = tuple(TOOL / name for name in INSIDE_FILES)
    return Code(ENTRY, (TOOL.parent, workspace), granted, (STAGES,), MODULES, declared=True)


def digest(stages: str) -> str:
    """Of all that a confined process is made of.

    Args:
        stages: SHA-256 of the workspace's stages; the installed tool's part is hashed here.
    """
    installed = (sha256_path(TOOL / name, compiled=False) for name in INSIDE_FILES)
    return hashlib.sha256("\n".join([stages, *installed]).encode()).hexdigest()
