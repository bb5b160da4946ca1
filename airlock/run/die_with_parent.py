"""Commands that cannot outlive the process that started them.

The kernel clears a parent-death signal on fork, so every link of a chain has its own: a flow starts `dvc` on
a leash, `airlock run` (there may be a shell in between) watches `dvc`, and the sandbox's processes die with
the broker. SIGKILL anywhere ends all below.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
from collections.abc import Sequence

from airlock.wall.kernel import PR_SET_PDEATHSIG, prctl

HOLDER = "AIRLOCK_LEASH"


def leashed(command: Sequence[str]) -> list[str]:
    """`command`, to be started by this process (and by a thread that waits for it) and to end with it.

    With -P, as wherever a program is started by its module: without it Python would import from the working
    folder first, and a file ctypes of the workspace would be run here.
    """
    return [sys.executable, "-P", "-m", "airlock.run.die_with_parent", str(os.getpid()), *command]


def hold() -> None:
    """Die with the leashed process above.

    Does nothing where there is none (a terminal that is closed may leave its jobs running).
    """
    holder = os.environ.get(HOLDER)
    if not holder:
        return
    try:
        above = os.pidfd_open(int(holder))
    except ProcessLookupError:
        sys.exit(128 + signal.SIGKILL)
    threading.Thread(target=_follow, args=(above,), daemon=True).start()


def _follow(above: int) -> None:
    select.select([above], [], [])
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Ask for the signal, then become the command: its process id
    is the one that the links below look for.
    """
    parent, command = int(sys.argv[1]), sys.argv[2:]
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGKILL)
    os.environ[HOLDER] = str(os.getpid())
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
