"""How a process lives that has one task: a command, or a stage behind the wall.

Most of what such a process allocates is modules, which stay to its end. Python's defaults look through all of them for
cycles every few hundred allocations, and take them apart one by one before the process ends: together a fifth of what
a short stage costs, and a third of one that imports torch.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from contextlib import suppress

# Net allocations before a collection of the young, and how many of those before one of the older.
THRESHOLDS = (100_000, 20, 20)
_WRITERS = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
_status: int | None = None


def collect_seldom() -> None:
    """Look for cycles after a hundred thousand allocations, not after seven hundred."""
    gc.set_threshold(*THRESHOLDS)


def begin() -> None:
    """From here on. To be called before anybody else says what is to be done at the end, for the first who said it is
    called last.
    """
    collect_seldom()
    atexit.register(_end)


def leave(status: int) -> None:
    """End in order (other threads come to their end, what was registered is called, files are written out), and
    without taking modules apart.
    """
    global _status
    _status = status
    sys.exit(status)


def _end() -> None:
    if _status is None:  # it ends in another way: by an exception, or a child of a fork
        return
    for file in [one for one in gc.get_objects() if type(one) in _WRITERS]:
        with suppress(OSError, ValueError):  # closed already, or its reader is gone
            file.flush()
    os._exit(_status)
