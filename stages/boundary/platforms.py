"""On what kind of machine a stage ran: floating point is the same bit for bit only between like machines."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "pyarrow", "scipy", "torch")


def platform_facts() -> dict[str, Any]:
    """What the bits of a result may depend on. Nothing here names the machine."""
    return {
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _processor(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "threads": threads(),
    }


def threads() -> int:
    """How many threads a stage may compute with; the order of floating-point sums depends on it."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdigit() and int(asked) > 0 else len(os.sched_getaffinity(0))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"
