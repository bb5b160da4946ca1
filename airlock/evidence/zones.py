"""Zones and taint: who may read what, worked out from dvc.yaml alone.

`raw` -> (sensitive stage) -> `sealed` -> (release stage) -> `released` -> (open stage) -> `open`.
A release stage is the only door. What is checked is what DVC resolves (`evidence.reader`); what DVC has and
this check does not follow is refused.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from airlock.errors import BoundaryError, InputError
from airlock.evidence import reader
from airlock.run.allowed import out_problem, stage_problem

TOP = "dvc.yaml"
ZONES = ("sensitive", "release", "open")
LABEL_OF_ZONE = {"sensitive": "sealed", "release": "released", "open": "open"}
FOLDER_OF_LABEL = {"raw": "data/raw", "sealed": "data/sealed", "released": "data/released"}
RECORDS = ("raw", "sealed")
# What a stage may depend on although no stage makes it: code, parameters, schemas, encoders that the owner vouches
# for, and handles in place of raw files.
SOURCES = (
    "airlock",
    "stages",
    "tool",
    "data/encoders",
    "data/handles",
    "data/schemas",
    "dvc.yaml",
    "params.yaml",
    "pyproject.toml",
    "constraints.txt",
)
# All that a stage of dvc.yaml may have; DVC knows more, which is not followed here.
FIELDS = {
    "cmd",
    "deps",
    "desc",
    "frozen",
    "always_changed",
    "meta",
    "metrics",
    "outs",
    "params",
    "plots",
    "wdir",
}


@dataclass(frozen=True)
class Stage:
    """One stage of dvc.yaml. `outs` holds outs, metrics and plots alike."""

    name: str
    zone: str | None
    command: str
    deps: tuple[str, ...]
    outs: tuple[str, ...]
    remotes: Mapping[str, str | None]
    module: str | None = None
    description: str = ""
    frozen: bool = False
    file: str = TOP

    @property
    def address(self) -> str:
        """As DVC takes it on its command line."""
        return self.name if self.file == TOP else shlex.quote(f"{self.file}:{self.name}")

    def reads(self, graph: Graph) -> frozenset[str]:
        """Labels of everything that the wall lets this stage read."""
        labels = {graph.label(dep) for dep in self.deps}
        return frozenset(labels | ({"raw"} if self.zone == "sensitive" else set()))


@dataclass(frozen=True)
class Graph:
    """The stages of one dvc.yaml, with the label of every path."""

    stages: Mapping[str, Stage]

    def __iter__(self) -> Iterator[Stage]:
        return iter(self.stages.values())

    def stage(self, name: str) -> Stage:
        """The stage called `name`, or an error that lists the names there are."""
        if name not in self.stages:
            raise InputError(f"no stage '{name}' in dvc.yaml; stages: {', '.join(self.stages)}")
        return self.stages[name]

    @cached_property
    def _makers(self) -> dict[str, list[Stage]]:
        """By path: every check of every stage asks about the same few files."""
        return {}

    def makers(self, path: str) -> list[Stage]:
        """The stages with an out at, above or below `path`."""
        if path not in self._makers:
            self._makers[path] = [stage for stage in self if any(overlaps(out, path) for out in stage.outs)]
        return self._makers[path]

    def label(self, path: str) -> str:
        """The most sensitive label that `path` can carry."""
        labels = {LABEL_OF_ZONE.get(stage.zone or "", "sealed") for stage in self.makers(path)}
        labels |= {label for label, folder in FOLDER_OF_LABEL.items() if overlaps(folder, path)}
        for label in ("raw", "sealed", "released"):
            if label in labels:
                return label
        return "open"


def is_source(path: str) -> bool:
    """Whether a stage may depend on it although no stage makes it."""
    return _known(path, SOURCES)


def is_code(path: str) -> bool:
    """Whether Python may have put compiled files beside what is there."""
    return path.split("/")[0] in ("airlock", "stages")


def overlaps(left: str, right: str) -> bool:
    """Whether one path is the other, or lies inside it."""
    return (
        "." in (left, right)
        or left == right
        or left.startswith(right.rstrip("/") + "/")
        or right.startswith(left.rstrip("/") + "/")
    )


def parse(dvc_yaml: str, params_yaml: str, others: Mapping[str, str] | None = None) -> Graph:
    """The stages of dvc.yaml as DVC resolves them, with `${...}` filled in from params.yaml.

    Args:
        dvc_yaml: text of the top folder's file.
        params_yaml: text of params.yaml.
        others: texts of dvc.yaml files further down, by path; what DVC would run is checked wherever it
            stands.

    Raises:
        BoundaryError: for what this check does not follow (foreach, matrix, vars, a templated command, other
            parameter files, another working folder): what cannot be checked does not run.
    """
    reader.load(params_yaml, reader.PARAMS)
    stages: dict[str, Stage] = {}
    for path, text in {TOP: dvc_yaml, **(others or {})}.items():
        document = reader.load(text, path)
        if unknown := sorted(str(key) for key in document.keys() - {"stages"}):
            raise BoundaryError(
                f"{path}: `{unknown[0]}` is not followed by the taint check: only `stages` may stand there, "
                "values in params.yaml"
            )
        written = document.get("stages") or {}
        if not isinstance(written, dict):
            raise BoundaryError(f"{path}: `stages` must be a mapping of names to stages")
        for name, body in written.items():
            _check_followed(path, name, body, stages)
        for name, body in reader.resolve(path, document, params_yaml).items():
            stages[name] = replace(_stage(name, body), file=path)
    return Graph(stages)


def _check_followed(path: str, name: Any, body: Any, known: Mapping[str, Stage]) -> None:
    if not isinstance(name, str) or not isinstance(body, dict):
        raise BoundaryError(f"{path}: '{name}' is not a stage: write NAME: {{cmd: ..., meta: {{zone: ...}}}}")
    if "foreach" in body or "matrix" in body:
        raise BoundaryError(
            f"stage '{name}': foreach and matrix are not followed by the taint check: write the stages out"
        )
    if unknown := sorted(str(key) for key in body.keys() - FIELDS):
        raise BoundaryError(
            f"stage '{name}': `{unknown[0]}` is not followed by the taint check: leave it out"
        )
    for field in ("cmd", "meta", "wdir"):
        if "$" in repr(body.get(field)):
            raise BoundaryError(
                f"stage '{name}': `{field}` must stand as it is, without ${{...}}: write it out"
            )
    if posixpath.normpath(posixpath.join(posixpath.dirname(path), str(body.get("wdir", ".")))) != ".":
        raise BoundaryError(
            f"stage '{name}' in {path} must work in the top folder: set its `wdir` so that it leads there"
        )
    if name in known:
        raise BoundaryError(f"stage '{name}' in {path} has the name of another stage: choose another")
    _check_params(name, body.get("params") or [])


def _check_params(name: str, params: Any) -> None:
    """DVC copies the values of parameters into dvc.lock, which is public: never those of any other file."""
    for entry in params if isinstance(params, list) else [params]:
        for file in entry if isinstance(entry, dict) else ():
            if posixpath.normpath(str(file)) != reader.PARAMS:
                raise BoundaryError(
                    f"stage '{name}' takes parameters from '{file}', whose "
                    "values DVC would publish in dvc.lock: "
                    f"put them into params.yaml"
                )


def _stage(name: str, body: Mapping[str, Any]) -> Stage:
    outs: dict[str, str | None] = {}
    for section in ("outs", "metrics", "plots"):
        for entry in body.get(section) or []:
            items = entry.items() if isinstance(entry, dict) else [(entry, {})]
            outs.update({_normal(path): (options or {}).get("remote") for path, options in items})
    meta = body.get("meta") or {}
    command = body.get("cmd")
    deps = body.get("deps") or []
    if not all(isinstance(dep, str) for dep in deps):
        raise BoundaryError(f"stage '{name}': a dep must be a path of this workspace: write it as text")
    if remote := next((path for path in (*deps, *outs) if ":" in path), None):
        raise BoundaryError(
            f"stage '{name}': '{remote}' is not in this workspace: bring it in (airlock add FILE)"
        )
    return Stage(
        name=name,
        zone=meta.get("zone") if isinstance(meta, dict) else None,
        command=command if isinstance(command, str) else repr(command),
        deps=tuple(_normal(dep) for dep in deps),
        outs=tuple(outs),
        remotes=outs,
        module=meta.get("module") if isinstance(meta, dict) else None,
        description=str(body.get("desc") or ""),
        frozen=bool(body.get("frozen")),
    )


def _normal(path: str) -> str:
    return posixpath.normpath(str(path))


def problems(graph: Graph) -> list[str]:
    """Everything that is wrong with the boundary, one line each, with the stage's and the path's name."""
    found = [line for stage in graph for line in _problems_of(stage, graph)]
    return found + list(_spread(graph, {stage.name for stage in graph if _reads_records(stage, graph)}))


def check(graph: Graph) -> None:
    """Raise on the first problem."""
    if found := problems(graph):
        more = f" (and {len(found) - 1} more: airlock audit)" if len(found) > 1 else ""
        raise BoundaryError(found[0] + more)


def _problems_of(stage: Stage, graph: Graph) -> Iterator[str]:
    if problem := stage_problem(stage.name):
        yield problem
    if stage.zone not in ZONES:
        yield (
            f"stage '{stage.name}' has no zone: add `meta: {{zone: sensitive "
            "| release | open}` to it in dvc.yaml"
        )
        return
    if stage.command != f"airlock run {stage.name}":
        yield f"stage '{stage.name}': cmd goes around the runner: make it `airlock run {stage.name}`"
    if stage.module and stage.zone != "open":
        yield f"stage '{stage.name}': only an open stage may name a module of its own"
    for dep in stage.deps:
        yield from _problems_of_dep(stage, dep, graph)
    for out in stage.outs:
        yield from _problems_of_out(stage, out, graph)


def _problems_of_dep(stage: Stage, dep: str, graph: Graph) -> Iterator[str]:
    label = graph.label(dep)
    if label == "raw":
        yield (
            f"stage '{stage.name}' depends on raw data '{dep}': depend "
            "on its handle instead (airlock add FILE)"
        )
    elif stage.zone == "open" and label == "sealed":
        yield (
            f"open stage '{stage.name}' depends on sealed records '{dep}': only a release stage may read them"
        )
    elif dep.startswith(("/", "..")):
        yield (
            f"stage '{stage.name}' depends on '{dep}' outside the workspace: move it inside or add it "
            "(airlock add FILE)"
        )
    elif not graph.makers(dep) and not _known(dep, SOURCES):
        yield (
            f"stage '{stage.name}' depends on '{dep}', which no stage makes and which is neither code, "
            "schema nor handle: "
            f"add it (airlock add FILE)"
        )


def _problems_of_out(stage: Stage, out: str, graph: Graph) -> Iterator[str]:
    label = LABEL_OF_ZONE[str(stage.zone)]
    if out.startswith(("/", "..")):
        yield f"stage '{stage.name}' has an out '{out}' outside the workspace: move it inside"
        return
    home = FOLDER_OF_LABEL.get(label)
    where = next((other for other, folder in FOLDER_OF_LABEL.items() if overlaps(folder, out)), "open")
    if where != label:
        yield (
            f"stage '{stage.name}' makes {label} data, but its out '{out}' is labelled {where}: move it "
            f"to {home or 'another folder'}"
        )
    if any(overlaps(source, out) for source in SOURCES):
        yield f"stage '{stage.name}' writes over code, schemas or handles at '{out}': choose another path"
    elif where == label and (problem := out_problem(out, str(stage.zone))):
        yield f"stage '{stage.name}' has an out at '{out}': {problem}"
    wanted = "sealed" if label == "sealed" else "released"
    if stage.remotes.get(out) != wanted:
        yield (
            f"stage '{stage.name}': out '{out}' must have `remote: {wanted}`, so that sealed and released "
            "data are never pushed together"
        )
    for other in graph.makers(out):
        if other.name != stage.name:
            yield f"stage '{stage.name}': out '{out}' overlaps an out of stage '{other.name}'"


def _known(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _reads_records(stage: Stage, graph: Graph) -> bool:
    return stage.zone == "open" and any(graph.label(dep) in RECORDS for dep in stage.deps)


def _spread(graph: Graph, tainted: set[str]) -> Iterator[str]:
    """Open stages that read records through other open stages."""
    queue = sorted(tainted)
    while queue:
        source = graph.stages[queue.pop(0)]
        for stage in graph:
            path = next((dep for dep in stage.deps if any(overlaps(out, dep) for out in source.outs)), None)
            if stage.zone == "open" and stage.name not in tainted and path is not None:
                tainted.add(stage.name)
                queue.append(stage.name)
                yield (
                    f"open stage '{stage.name}' depends on records through '{path}' of stage '{source.name}'"
                )
