"""A stage run by root is a user of its own that owns nothing; every stage has limits; its first process tells
nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airlock.run import paths
from airlock.wall import layers
from airlock.wall.launch_plan import LaunchLimits
from tests.support.small_workspace import Cell, cell

OFFERED = layers.choose("advisory", zone="open")
needs_all = pytest.mark.skipif(layers.ALL != OFFERED, reason="not all layers here: airlock doctor")
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a stage another user")
SMALL = LaunchLimits(memory=256 << 20, processes=40, file_size=1 << 20)
EATERS = {
    "memory": "bytearray(1 << 30)",
    "file_size": "open('staging/out', 'wb', buffering=0).write(bytes(2 << 20)) == 2 << 20 or 1 / 0",
    "processes": "import threading, time; [threading.Thread(target=time.sleep, args=(3,), "
    "daemon=True).start() for _ in range(60)]",
}


@pytest.fixture
def room() -> Iterator[Cell]:
    with cell() as made:
        yield made


def run_held(room: Cell, code: str, wanted: frozenset[layers.Layer] = layers.ALL) -> int:
    """With dep and staging opened beforehand, as the runner does; the user number it ran as."""
    with (
        paths.hold(room.base, ["data/released/table"]) as held,
        paths.hold_folder(room.staging, "/outs") as staging,
    ):
        grants = room.grants()
        given = replace(
            grants, read=grants.read[:-1], write=(), held=tuple(held.values()), held_write=(staging,)
        )
        outcome = room.run(code, wanted, grants=given)
    assert outcome.returncode == 0, room.output
    return outcome.user


@needs_all
@as_root
def test_as_root_a_stage_is_a_user_that_owns_nothing(room: Cell) -> None:
    room.dep.chmod(0o600)
    code = (
        f"import os; print(open({str(room.dep)!r}).read(), os.getresuid(), os.getresgid(), "
        "os.getgroups()); open('/outs/x', 'w').write('made')"
    )
    user = run_held(room, code)
    assert user > 1 << 30 and room.output == f"the dep ({user}, {user}, {user}) ({user}, {user}, {user}) []\n"
    made = room.staging / "x"
    assert made.read_text() == "made" and made.stat().st_uid == 0, "on the disk it is the runner's"


@needs_all
@as_root
def test_two_runs_at_once_are_two_users(room: Cell) -> None:
    child = os.fork()
    if child == 0:
        os._exit(run_held(room, "pass") % 199)
    ours = run_held(room, "pass") % 199
    theirs = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert ours != theirs


@pytest.mark.skipif(not OFFERED >= layers.MINIMUM, reason="no Landlock here: airlock doctor")
def test_without_a_new_root_it_stays_the_runners_user(room: Cell) -> None:
    """The control, and what `airlock doctor` says about such machines."""
    code = "import os; print(os.getuid())"
    with paths.hold(room.base, ["data/released/table"]) as held:
        given = replace(room.grants(), read=room.grants().read[:-1], held=tuple(held.values()))
        outcome = room.run(code, layers.MINIMUM, grants=given)
    assert outcome.user == os.getuid() and room.output == f"{os.getuid()}\n"


@needs_all
def test_the_first_process_does_not_tell_where_things_are(room: Cell) -> None:
    code = """
import os, subprocess, sys
for name in ("mem", "maps", "environ", "fd", "cwd", "root", "auxv"):
    path = f"/proc/1/{name}"
    try:
        print("got in", os.listdir(path) if name == "fd" else os.readlink(path) if name in ("cwd", "root") else open(path, "rb").read(1))
    except OSError as error:
        print(type(error).__name__)
child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE)
open(f"/proc/{child.pid}/mem", "rb").close()
print("a process of its own it can read", flush=True)
child.kill()
"""  # noqa: E501
    room.run(code)
    assert "got in" not in room.output and "it can read\n" in room.output, room.output


@needs_all
@pytest.mark.parametrize("what", EATERS)
def test_limits_hold(room: Cell, what: str) -> None:
    if what == "processes" and os.getuid() != 0:
        pytest.skip("the user's own other processes count")
    assert room.run(EATERS[what], limits=SMALL).returncode != 0
    assert "Error" in room.output


@needs_all
@pytest.mark.parametrize("what", EATERS)
def test_without_limits_the_same_code_runs(room: Cell, what: str) -> None:
    """The control."""
    assert room.run(EATERS[what]).returncode == 0, room.output


@needs_all
def test_torch_works_within_the_defaults(room: Cell) -> None:
    from airlock.params import BoundaryParams
    from airlock.run import limits

    code = (
        "import torch; x = torch.randn(256, 256, requires_grad=True); (x @ x).sum().backward(); "
        "print('trained')"
    )
    outcome = room.run(code, limits=limits.of(BoundaryParams()).for_kernel())
    assert outcome.returncode == 0 and room.output == "trained\n", room.output


def test_a_raw_file_in_a_folder_of_the_system_is_seen() -> None:
    from airlock.wall.grants import granted_to_all

    assert granted_to_all(Path("/usr/lib/records.csv")) and granted_to_all(Path(os.__file__).parent / "x.csv")
    assert granted_to_all(Path("/home/records.csv")) is None
