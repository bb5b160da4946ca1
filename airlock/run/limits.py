"""The most that one run of a stage may take, from params.yaml's `boundary` section to numbers that the kernel
knows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from airlock.params import BoundaryParams
from airlock.wall import launch_plan

GIB, MIB = 1 << 30, 1 << 20
_SHARE = 0.9


@dataclass(frozen=True)
class Limits:
    """Bytes, processes and seconds.

    Attributes:
        memory: bytes, of the whole stage where there are control groups, of data per process elsewhere.
        processes: processes and threads at once.
        file_size: bytes of one file, and of all outs together.
        output: bytes that a stage prints or tells.
        time: seconds.
    """

    memory: int
    processes: int
    file_size: int
    output: int
    time: float

    def for_kernel(self) -> launch_plan.LaunchLimits:
        """Those that the launcher sets."""
        return launch_plan.LaunchLimits(
            memory=self.memory, processes=self.processes, file_size=self.file_size
        )


def of(boundary: BoundaryParams) -> Limits:
    """The limits that params.yaml asks for, on this machine."""
    asked = boundary.memory
    return Limits(
        memory=int(machine_memory() * _SHARE) if asked == "auto" else int(asked * GIB),
        processes=boundary.processes,
        file_size=int(boundary.file_size * GIB),
        output=int(boundary.output * MIB),
        time=boundary.time,
    )


def machine_memory() -> int:
    """Bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
