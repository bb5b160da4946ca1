"""Another user of the machine, for attacks of one user on another: `run` runs a command as somebody who is not us.

Root becomes that user. Whoever is not root cannot; for them `tests/wall/attacks/disguise.py`, while it is still
root, leaves a process of the other account behind, which runs what it is asked over a socket.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

DISGUISE = Path(__file__).parents[1] / "wall/attacks/disguise.py"
OTHER = 65533
VARIABLE = "AIRLOCK_TEST_SECOND_ACCOUNT"
MISSING = "" if os.geteuid() == 0 or VARIABLE in os.environ else "only root can be somebody else"


def run(command: Sequence[str]) -> str:
    """What a command prints, started by the other user in the top folder."""
    if os.geteuid() == 0:
        return _run([sys.executable, str(DISGUISE), str(OTHER), *command])
    with socket.socket(fileno=os.dup(int(os.environ[VARIABLE]))) as line:
        line.sendall(json.dumps(list(command)).encode() + b"\n")
        with line.makefile() as answers:
            return str(json.loads(answers.readline()))


def _run(command: Sequence[str]) -> str:
    own = {"PATH": os.defpath, "HOME": "/"}
    done = subprocess.run(command, cwd="/", env=own, capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr.strip()


def become(user: int) -> None:
    """For good."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def leave_behind() -> None:
    """Fork a process of the other account; it ends with the last holder of our end of the socket."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        for stream in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), stream)
        become(OTHER)
        with theirs.makefile("rw") as questions:
            for question in questions:
                questions.write(json.dumps(_run(json.loads(question))) + "\n")
                questions.flush()
        os._exit(0)
    os.environ[VARIABLE] = str(ours.fileno())
    os.set_inheritable(ours.detach(), True)
