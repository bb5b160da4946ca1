"""The open side alone: fetch what was released, train, evaluate, report, without key, ledger or record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger
from prefect.concurrency.sync import concurrency

from airlock.run import die_with_parent
from flows import overrides as parameters
from flows.artifacts import show_results
from flows.limits import LEASE_SECONDS, LIMITS, OPEN
from flows.pipeline import learn
from flows.reproduction import exchange


@flow(name="training", persist_result=False)
def training(overrides: dict[str, Any] | None = None, pull: bool = True) -> None:
    """Train from the release that dvc.lock names.

    Args:
        overrides: keys of the section `train` of params.yaml, for instance {"train.epochs": 500}.
        pull: whether to fetch the release first, from the DVC remote `released`.
    """
    die_with_parent.hold()
    workspace, changes = Path.cwd(), overrides or {}
    parameters.only(changes, "train")
    parameters.merged(workspace, changes)
    with (
        concurrency(
            LIMITS[OPEN], strict=True, lease_duration=LEASE_SECONDS, raise_on_lease_renewal_failure=False
        ),
        parameters.turn(workspace),
    ):
        if pull:
            exchange(workspace, "pull", get_run_logger().info)
        with parameters.written(workspace, changes, ()):
            learn(workspace)
        show_results(workspace)
