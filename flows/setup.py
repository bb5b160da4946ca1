"""`python -m flows.setup`: give a Prefect server what the flows need: work pools, limits, deployments. Repeat it at will."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from flows.limits import LIMITS, POOLS


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
    done = subprocess.run(["prefect", "--no-prompt", "deploy", "--all"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"prefect deploy failed in {Path.cwd().name}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
