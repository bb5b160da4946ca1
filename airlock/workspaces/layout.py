"""What a new workspace is made of: the stages and the pipeline as they were shipped, and a few texts.

A wheel carries them in `shipped/` (setup.py puts them there); in a clone of the product they are the clone's own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from airlock.errors import InputError
from airlock.evidence import zones
from airlock.inside.digests import BYTECODE_FOLDER
from airlock.run.code import STAGES, TOOL
from airlock.workspaces import lock

DISTRIBUTION = "airlock-pipeline"
PIPELINES = ("dvc.yaml", "owner/dvc.yaml")
FIRST_DATASET = "wdbc"
SCHEMAS = "data/schemas"
ENCODERS = "data/encoders/README.md"
TEXTS = {
    ".ci/run": "ci",
    ".dvc/.gitignore": "dvc_gitignore",
    ".dvc/config": "dvc_config",
    ".dvcignore": "dvcignore",
    ".github/workflows/airlock.yml": "workflow.yml",
    ".gitignore": "gitignore",
    "README.md": "readme.md",
    "requirements.txt": "requirements",
}
EXECUTABLE = (".ci/run",)


def version() -> str:
    """Of the installed tool."""
    return metadata.version(DISTRIBUTION)


def shipped() -> Path:
    """The folder with what was shipped.

    Raises:
        InputError: the installation is not whole.
    """
    for place in (Path(__file__).with_name("shipped"), TOOL.parent):
        if all((place / name).exists() for name in (*PIPELINES, STAGES, "params.yaml", SCHEMAS)):
            return place
    raise InputError(f"this installation has no stages to start from: install {DISTRIBUTION} from its wheel")


def followed() -> dict[str, bytes]:
    """What `airlock upgrade` keeps up with, where nobody has edited it: stages, pipelines, the folder of encoders."""
    source = shipped()
    files = {name: _without_tool((source / name).read_text()).encode() for name in PIPELINES}
    files[ENCODERS] = (source / ENCODERS).read_bytes()
    return files | {
        path.relative_to(source).as_posix(): path.read_bytes()
        for path in sorted((source / STAGES).rglob("*"))
        if path.is_file() and BYTECODE_FOLDER not in path.parts
    }


def once(name: str, identity: str) -> dict[str, bytes]:
    """What belongs to the project from its first day on, and is never touched again."""
    source, texts = shipped(), Path(__file__).with_name("texts")
    words = {"name": name, "version": version()}
    files = {path: _filled((texts / text).read_text(), words).encode() for path, text in TEXTS.items()}
    for kept in ("params.yaml", "constraints.txt", f"{SCHEMAS}/{FIRST_DATASET}.yaml"):
        files[kept] = (source / kept).read_bytes()
    files["data/project.json"] = (json.dumps({"id": identity, "version": 1}) + "\n").encode()
    return files


def schema(name: str) -> bytes | None:
    """The schema that is shipped for a public data set."""
    file = shipped() / SCHEMAS / f"{name}.yaml"
    return file.read_bytes() if file.is_file() else None


def locks(workspace: Path) -> dict[str, bytes]:
    """The tool's locks of all stages of a workspace."""
    from airlock.evidence.revisions import load_graph

    return {lock.place(stage.name): lock.text(workspace, stage).encode() for stage in load_graph(workspace)}


def _filled(text: str, words: dict[str, str]) -> str:
    return re.sub(r"<<(\w+)>>", lambda match: words[match[1]], text)


def _without_tool(text: str) -> str:
    """A pipeline whose stages depend on the tool's lock in place of the tool's own files."""
    return "\n".join(_lines(text)) + "\n"


def _lines(text: str) -> Iterator[str]:
    stage, locked = "", False
    for line in text.splitlines():
        if found := re.fullmatch(r"  ([a-z][a-z0-9-]*):", line):
            stage, locked = found[1], False
        if line.startswith(f"    - {TOOL.name}/"):
            if not locked:
                yield f"    - {lock.place(stage)}"
            locked = True
        else:
            yield line


def graph(files: dict[str, bytes], params: str) -> zones.Graph:
    """The stages of pipelines that are not on disk."""
    texts = {name: files[name].decode() for name in PIPELINES}
    return zones.parse(texts.pop("dvc.yaml"), params, texts)
