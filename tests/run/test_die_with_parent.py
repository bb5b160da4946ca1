"""A chain of processes that is killed at its head ends as a whole, also through a shell that knows nothing of
it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

INNER = """
import os, sys, time
from airlock.run import die_with_parent
die_with_parent.hold()
print(os.getpid(), flush=True)
time.sleep(600)
"""
MIDDLE = "import subprocess, sys; subprocess.run(['sh', '-c', f'{sys.executable} {sys.argv[1]}; true'])"
OUTER = (
    "import subprocess, sys; from airlock.run.die_with_parent import leashed; "
    "subprocess.run(leashed([sys.executable, '-c', *sys.argv[1:]]))"
)


def test_a_kill_at_the_head_reaches_the_end(tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text(INNER)
    command = [sys.executable, "-c", OUTER, MIDDLE, str(tmp_path / "inner.py")]
    head = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert head.stdout is not None
    assert head.stdout.readline().strip().isdigit()
    head.kill()
    head.wait()
    # The pipe's last writer is the innermost process: its end is the end of the file.
    assert head.stdout.read() == ""
    head.stdout.close()


def test_a_chain_that_lost_its_head_does_not_start(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / "inner.py").write_text(INNER)
    environment = {**os.environ, "AIRLOCK_LEASH": str(gone.pid)}
    ended = subprocess.run(
        [sys.executable, str(tmp_path / "inner.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout) == (137, "")
