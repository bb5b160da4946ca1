"""One run of one stage, as it is asked for: parameters and taint are checked here, before anything starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from airlock.errors import BoundaryError, InputError
from airlock.evidence import zones
from airlock.evidence.revisions import load_graph
from airlock.owner.home import Project, project
from airlock.params import BoundaryParams, Params, load_params
from airlock.records import handles
from airlock.run import allowed, limits
from airlock.run.code import Code, of_workspace
from airlock.run.handover import Listener
from airlock.run.limits import Limits
from airlock.wall.layers import Layer, choose

GATE = "dataset"
"""The stage that DVC comes to first, whatever data set is asked for."""


@dataclass(frozen=True)
class Request:
    """One run of one stage, as it is asked for: checked, and nothing started yet."""

    workspace: Path
    params: Params
    graph: zones.Graph
    stage: zones.Stage
    project: Project
    code: Code
    boundary: BoundaryParams
    layers: frozenset[Layer]
    limits: Limits
    listen: Listener

    @property
    def zone(self) -> str:
        """The stage's room."""
        return str(self.stage.zone)

    @property
    def new_root(self) -> bool:
        """Whether paths have other names inside."""
        return Layer.ROOT in self.layers


def request(
    name: str,
    *,
    workspace: Path,
    listen: Listener = lambda event: None,
    home: Project | None = None,
    code: Code | None = None,
    boundary: BoundaryParams | None = None,
) -> Request:
    """Check what is asked for.

    Args:
        name: of a stage in dvc.yaml.
        workspace: the project's top folder.
        listen: told of progress.
        home: keys, ledger and log; those of the workspace's project otherwise.
        code: what runs behind the wall; the workspace's own otherwise.
        boundary: the wall, for somebody who does not leave it to the workspace's params.yaml (`airlock
            verify`).

    Raises:
        BoundaryError: the pipeline is not sound, or the wall cannot be raised here.
    """
    if problem := allowed.stage_problem(name):
        raise BoundaryError(problem)
    workspace = workspace.resolve()
    params, graph = load_params(workspace / "params.yaml"), load_graph(workspace)
    stage = graph.stage(name)
    zones.check(graph)
    if name == GATE and (wrong := handles.objection(workspace, params.dataset)):
        raise InputError(wrong)
    wall = boundary or params.boundary
    return Request(
        workspace=workspace,
        params=params,
        graph=graph,
        stage=stage,
        project=home or project(workspace),
        code=code or of_workspace(workspace),
        boundary=wall,
        layers=choose(wall.enforcement, zone=str(stage.zone)),
        limits=limits.of(wall),
        listen=listen,
    )
