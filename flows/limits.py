"""Names that the flows, their deployments and the server's setup share."""

from __future__ import annotations

SENSITIVE, OPEN = "sensitive", "open"
POOLS = {
    SENSITIVE: "Machines that hold keys, ledger and records.",
    OPEN: "Machines that hold released data only.",
}

# One run per side at a time: DVC refuses a second `dvc repro` in a workspace, a limit makes it wait instead.
LIMITS = {SENSITIVE: "airlock-sensitive", OPEN: "airlock-open"}
LEASE_SECONDS = 60
