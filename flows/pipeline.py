"""The scheduled pipeline. DVC owns the graph and the caching, Prefect the schedule, limits and reporting.

What reaches the Prefect server: parameters, names of stages, classes of errors, and the artifacts. Records,
where in a table one is broken, arrays and keys do not: a flow passes no values between its tasks, and what
stages print stays in the owner's log.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.concurrency.sync import concurrency

from airlock.owner.home import project
from airlock.run import budget, die_with_parent
from flows import overrides as parameters
from flows.artifacts import show_boundary, show_results
from flows.limits import LEASE_SECONDS, LIMITS, SENSITIVE
from flows.nights import make_nights
from flows.reproduction import exchange, reproduce, stages_of


@task(name="sensitive side", retries=0, cache_policy=NO_CACHE, persist_result=False)
def cross(workspace: Path) -> None:
    """Ingest and release. Never retried: what comes of a release cut off is the ledger's business."""
    reproduce(
        workspace, stages_of(workspace, "sensitive", "release"), get_run_logger().info, confidential=True
    )


@task(name="open side", retries=2, retry_delay_seconds=2, cache_policy=NO_CACHE, persist_result=False)
def learn(workspace: Path) -> None:
    """Train, evaluate and report on released data: free, and so retried."""
    reproduce(workspace, stages_of(workspace, "open"), get_run_logger().info, confidential=False)


@flow(name="pipeline", persist_result=False)
def pipeline(overrides: dict[str, Any] | None = None, push: bool = False) -> None:
    """Bring the whole pipeline up to date; with `release.horizon`, every night that is due, one after the other.

    Args:
        overrides: keys of params.yaml and their new values, for instance {"release.epsilon": 0.5}. They are
            written to params.yaml, as `dvc exp run --set-param` does, once they are known to be valid and
            affordable, and taken back if the run ends before it has paid.
        push: whether to send what was released to the DVC remote `released`, for machines of the open side.
    """
    die_with_parent.hold()
    workspace, changes = Path.cwd(), overrides or {}
    parameters.merged(workspace, changes)
    # A run that outlives its lease goes on: the workspace's own lock keeps a second one out.
    with (
        concurrency(
            LIMITS[SENSITIVE], strict=True, lease_duration=LEASE_SECONDS, raise_on_lease_renewal_failure=False
        ),
        parameters.turn(workspace),
    ):
        wanted = parameters.merged(workspace, changes)

        def bring_up(more: dict[str, Any]) -> None:
            # A run that the ledger would refuse ends before any stage starts.
            new = budget.due(project(workspace), workspace, parameters.merged(workspace, {**changes, **more}))
            with parameters.written(workspace, {**changes, **more}, new):
                cross(workspace)
            if push:
                exchange(workspace, "push", get_run_logger().info)
            learn(workspace)

        try:
            if wanted.release.horizon is None or "ingest.night" in changes:
                bring_up({})
            else:
                make_nights(workspace, lambda night: bring_up({"ingest.night": night}))
        finally:
            # At the end, however it came: in between, what was trained belongs to the release before.
            show_boundary(workspace)
        show_results(workspace)
