"""`python flows/worker.py POOL`: a worker that runs this clone's own flows, and nothing that a server makes up.

To Prefect's own worker the server says what the code of a run is: a command in the pool's template, steps that pull
it from somewhere, a path. Whoever has the password could say another one, and so could a local user who takes the
server's port while it is down. This worker takes three things from the server: that there is a run, by the name of
which flow, and with which parameters, which the flow checks. What is run for that name stands here.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":  # started by its path, with -P: nothing of the working folder is imported
    sys.path.append(str(Path(__file__).resolve().parents[1]))

from prefect.workers import process
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker, ProcessWorkerResult

from flows.limits import OPEN, SENSITIVE
from flows.server import foreign_settings

if TYPE_CHECKING:
    from prefect.client.schemas.objects import FlowRun

FLOWS = {SENSITIVE: ("pipeline",), OPEN: ("training",)}
ENGINE = f"{sys.executable} -m prefect.engine"


class OwnFlowsWorker(ProcessWorker):
    """Prefect's process worker, with every run's command, folder, environment and code decided here."""

    async def run(
        self, flow_run: FlowRun, configuration: ProcessJobConfiguration, task_status: Any = None
    ) -> ProcessWorkerResult:
        """Run it; what `configuration` says, which is the server's, counts for nothing."""
        flow = await self.client.read_flow(flow_run.flow_id)
        own = own_configuration(self._work_pool_name, flow.name, str(flow_run.id))
        return await super().run(flow_run, own, task_status)


def own_configuration(pool: str, flow: str, run: str) -> ProcessJobConfiguration:
    """How a run is started, whatever anyone else says.

    Raises:
        ValueError: this pool does not run such a flow.
    """
    if flow not in FLOWS.get(pool, ()):
        raise ValueError(f"the pool '{pool}' runs {', '.join(FLOWS.get(pool, ())) or 'nothing'} only")
    workspace = Path(os.environ["AIRLOCK_WORKSPACE"])
    if found := foreign_settings(workspace):
        raise ValueError(f"{found} in the workspace would change how Prefect works: remove it")
    own = {
        "PREFECT__FLOW_RUN_ID": run,
        "PREFECT__FLOW_ENTRYPOINT": f"{workspace / 'flows' / flow}.py:{flow}",
    }
    made = ProcessJobConfiguration(command=ENGINE, env={**os.environ, **own}, working_dir=workspace)
    made._command_configured = True
    return made


async def _no_hooks(*_: Any, **__: Any) -> Any:
    """Prefect asks for a run's flow again when it was cancelled or has crashed, for hooks that it may have:
    from the server.
    """
    raise RuntimeError("the flows here have no hooks")


async def work(pool: str) -> None:
    """Until the end."""
    vars(process)["load_flow_from_flow_run"] = _no_hooks
    # One at a time, as flows/limits.py has it: what is due meanwhile waits on the server, and not as a process.
    await OwnFlowsWorker(work_pool_name=pool, create_pool_if_not_found=False, limit=1).start()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
