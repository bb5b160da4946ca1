"""`python -m flows.setup`: give a Prefect server what the flows need: work pools, limits, deployments. Repeat it at will."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flows.limits import LIMITS, POOLS

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

SWEEP = "--sweep"


def main() -> None:
    """Set up the server that PREFECT_API_URL names, from prefect.yaml in the current folder."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    with get_client(sync_client=True) as client:
        for name in LIMITS.values():
            client.upsert_global_concurrency_limit_by_name(name, 1)
        for name, description in POOLS.items():
            with suppress(ObjectAlreadyExists):
                client.create_work_pool(WorkPoolCreate(name=name, type="process", description=description))
        if SWEEP in sys.argv:
            sweep(client)
    # Prefect fills in what it finds in the environment; the worker's folder is to stay a question, for each worker to answer.
    environment = {name: value for name, value in os.environ.items() if name != "AIRLOCK_WORKSPACE"}
    done = subprocess.run(
        ["prefect", "--no-prompt", "deploy", "--all"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"prefect deploy failed in {Path.cwd().name}: {done.stdout}{done.stderr}")


def sweep(client: SyncPrefectClient) -> None:
    """Before any worker starts: runs that are still under way on paper died with the last server, and hold no turn."""
    from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
    from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterState, FlowRunFilterStateType
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    under_way = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING, StateType.CANCELLING])
    for run in client.read_flow_runs(flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=under_way))):
        client.set_flow_run_state(
            run.id, Crashed(message="It ended with the schedule that ran it."), force=True
        )
    for name in LIMITS.values():
        client.update_global_concurrency_limit(name, GlobalConcurrencyLimitUpdate(active_slots=0))


if __name__ == "__main__":
    main()
