"""A process that ends without taking its modules apart leaves nothing undone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

WORK = """
import atexit, os, sys, threading, time
from airlock.inside import lifetime

lifetime.begin()
left_open = open("left-open", "w")
left_open.write("all of it")

def go_on():
    time.sleep(0.1)
    open("thread", "w").write("ended")

class Module:
    def __del__(self, os=os):
        os.close(os.open("taken-apart", os.O_CREAT | os.O_WRONLY))

kept = Module()
atexit.register(lambda: open("registered", "w").write("called"))
threading.Thread(target=go_on).start()
print("said")
"""


def run(tmp_path: Path, ending: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WORK + ending],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_threads_registered_calls_and_open_files_come_to_their_end_and_modules_are_left_alone(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, "lifetime.leave(7)")
    assert (done.returncode, done.stdout) == (7, "said\n"), done.stderr
    assert (tmp_path / "left-open").read_text() == "all of it"
    assert (tmp_path / "thread").read_text() == "ended"
    assert (tmp_path / "registered").read_text() == "called"
    assert not (tmp_path / "taken-apart").exists()


def test_an_error_is_no_good_end(tmp_path: Path) -> None:
    done = run(tmp_path, "raise ValueError('wrong')")
    assert done.returncode == 1 and "wrong" in done.stderr
    assert (tmp_path / "taken-apart").exists(), "the control: otherwise all is taken apart"
    assert (tmp_path / "left-open").read_text() == "all of it"


def test_a_child_of_a_fork_ends_by_itself(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "child = os.fork()\nif not child:\n    sys.exit(5)\n"
        "lifetime.leave(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) + 1)",
    )
    assert done.returncode == 6, done.stderr
