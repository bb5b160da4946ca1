"""`python -m flows.setup`: give a Prefect server what the flows need: work pools, limits, deployments.

Repeat it at will. With `--sweep POOL` it only ends, on paper, the runs that a pool's worker took with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from flows.limits import JOB_TEMPLATE, LIMITS, POOLS

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

SWEEP = "--sweep"


def main() -> None:
    """Set up the server that PREFECT_API_URL names, from prefect.yaml in the current folder."""
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        require_password(str(client.api_url))
        if SWEEP in sys.argv:
            sweep(client, sys.argv[-1])
            return
        for name in LIMITS.values():
            client.upsert_global_concurrency_limit_by_name(name, 1)
        for name, description in POOLS.items():
            _make_pool(client, name, description)
    _deploy()


def _deploy() -> None:
    # Prefect fills in what it finds in the environment; the worker's folder is to stay a question, for each
    # worker to answer.
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


def require_password(api: str) -> None:
    """Refuse a server that talks to strangers: any of them could run code as the owner of its workers."""
    request = urllib.request.Request(f"{api.rstrip('/')}/work_pools/filter", b"{}", method="POST")
    request.add_header("Content-Type", "application/json")
    try:
        urllib.request.urlopen(request, timeout=60).close()
    except urllib.error.HTTPError as answer:
        if answer.code in (401, 403):
            return
        sys.exit(
            f"airlock: the Prefect server at {api} answers {answer.code} to a stranger, not 401: see its log"
        )
    except OSError as error:
        sys.exit(
            f"airlock: no Prefect server answers at {api} ({type(error).__name__}): check PREFECT_API_URL"
        )
    sys.exit(
        f"airlock: the Prefect server at {api} asks for no password: set PREFECT_SERVER_API_AUTH_STRING for "
        "it, and PREFECT_API_AUTH_STRING for its workers and clients (docs/scheduling.md)"
    )


def _make_pool(client: SyncPrefectClient, name: str, description: str) -> None:
    """A pool whose runs are all started the same way; one that was made otherwise is changed."""
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectAlreadyExists

    pool = {"description": description, "base_job_template": JOB_TEMPLATE}
    try:
        client.create_work_pool(WorkPoolCreate(name=name, type="process", **pool))
    except ObjectAlreadyExists:
        client.update_work_pool(name, WorkPoolUpdate(**pool))


def sweep(client: SyncPrefectClient, pool: str) -> None:
    """Before a pool's worker starts: what is under way on paper died with its last one, and holds no turn."""
    from prefect.client.schemas.actions import GlobalConcurrencyLimitUpdate
    from prefect.client.schemas.filters import (
        FlowRunFilter,
        FlowRunFilterState,
        FlowRunFilterStateType,
        WorkPoolFilter,
        WorkPoolFilterName,
    )
    from prefect.client.schemas.objects import StateType
    from prefect.states import Crashed

    under_way = FlowRunFilterStateType(any_=[StateType.RUNNING, StateType.PENDING, StateType.CANCELLING])
    found = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=under_way)),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
    )
    for run in found:
        client.set_flow_run_state(
            run.id, Crashed(message="It ended with the worker that ran it."), force=True
        )
    client.update_global_concurrency_limit(LIMITS[pool], GlobalConcurrencyLimitUpdate(active_slots=0))


if __name__ == "__main__":
    main()
