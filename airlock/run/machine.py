"""On what kind of machine a stage ran: floating point is the same bit for bit only between like machines."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "pyarrow", "scipy", "torch")
CPUINFO = Path("/proc/cpuinfo")
VECTORS = ("amx", "avx", "fma")


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
    """Name, family, model, and the vector instructions by which libraries choose their kernels.

    The name alone is not enough: virtual machines on different processors may have the same one.
    """
    try:
        first = CPUINFO.read_text().split("\n\n", 1)[0]
    except OSError:
        return platform.processor()
    facts = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())
    }
    vectors = sorted(flag for flag in facts.get("flags", "").split() if flag.startswith(VECTORS))
    words = [
        facts.get("model name", platform.processor()),
        *(f"{key} {facts[key]}" for key in ("cpu family", "model") if key in facts),
    ]
    return ", ".join([*words, *([" ".join(vectors)] if vectors else [])])


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "none"
