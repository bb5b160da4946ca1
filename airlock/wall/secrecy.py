"""A process that holds a key leaves no image of its memory behind, and is closed to other processes of the
same user.
"""

from __future__ import annotations

import resource

from airlock.wall import kernel


def keep() -> None:
    """No core file, whatever the machine's limits and its core_pattern say; no debugger, no /proc/PID/mem.
    For good, but not
    for programs that this process starts."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
