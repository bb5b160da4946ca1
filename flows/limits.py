"""Names that the flows, their deployments and the server's setup share."""

from __future__ import annotations

from typing import Any

SENSITIVE, OPEN = "sensitive", "open"
POOLS = {
    SENSITIVE: "Machines that hold keys, ledger and records.",
    OPEN: "Machines that hold released data only.",
}

# One run per side at a time: DVC refuses a second `dvc repro` in a workspace, a limit makes it wait instead.
LIMITS = {SENSITIVE: "airlock-sensitive", OPEN: "airlock-open"}
LEASE_SECONDS = 60

# What a worker starts is `prefect.engine` in its own environment, and no run may say otherwise: in a pool as
# Prefect makes it, whoever asks for a run chooses its command, its environment and its folder.
JOB_TEMPLATE: dict[str, Any] = {
    "job_configuration": {"stream_output": True, "labels": {}},
    "variables": {"type": "object", "properties": {}, "additionalProperties": False},
}
