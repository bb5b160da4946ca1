"""Limits of a whole stage: tried with what this machine offers, and said where it offers nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from airlock.wall import cgroups, layers
from airlock.wall.launch_plan import LaunchLimits
from tests.support.small_workspace import Cell, cell

OFFERED = layers.choose("advisory", zone="open")
VERSION, PARENTS = cgroups.offered()
needs_groups = pytest.mark.skipif(VERSION == cgroups.NONE, reason="no control groups here: airlock doctor")
needs_all = pytest.mark.skipif(layers.ALL != OFFERED, reason="not all layers here: airlock doctor")
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can set up a hierarchy")
LIMITS = LaunchLimits(memory=192 << 20, processes=64, file_size=1 << 30)
# Each process stays below the limit, all together do not.
MANY = """
import os, time
children = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        kept = bytearray(48 << 20)
        for place in range(0, len(kept), 4096):
            kept[place] = 1
        time.sleep(1.0)
        os._exit(0)
    children.append(child)
ends = [os.waitpid(child, 0)[1] for child in children]
raise SystemExit(any(ends))
"""
IN_MEMORY = "open('/dev/shm/x', 'wb', buffering=0).write(bytes(64 << 20)); " * 1 + (
    "[open(f'/dev/shm/{n}', 'wb', buffering=0).write(bytes(64 << 20)) for n in range(5)]"
)
CROWD = "import os, time\nfor _ in range(100):\n    os.fork() or (time.sleep(2), os._exit(0))\n"


@pytest.fixture
def room() -> Iterator[Cell]:
    with cell() as made:
        yield made


@needs_groups
@needs_all
@pytest.mark.parametrize("code", [MANY, IN_MEMORY], ids=["processes", "shared memory"])
def test_memory_is_that_of_the_whole_stage(room: Cell, code: str) -> None:
    outcome = room.run(code, limits=LIMITS)
    assert outcome.limits == VERSION and outcome.returncode != 0 and outcome.out_of_memory, room.output


@needs_all
@pytest.mark.parametrize("code", [MANY, IN_MEMORY], ids=["processes", "shared memory"])
def test_without_a_group_each_process_has_the_limit_for_itself(
    room: Cell, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control, and what a machine without control groups does; it says so."""
    monkeypatch.setattr(cgroups, "offered", lambda: (cgroups.NONE, ()))
    outcome = room.run(code, limits=LIMITS)
    assert outcome.returncode == 0, room.output
    assert outcome.limits == "rlimits" and not outcome.out_of_memory


@needs_groups
@needs_all
def test_processes_are_those_of_the_whole_stage(room: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert room.run(CROWD, limits={**LIMITS, "processes": 30}).returncode == 1
    assert "BlockingIOError" in room.output
    assert room.run(CROWD, limits={**LIMITS, "memory": 0, "processes": 500}).returncode == 0, room.output


@needs_groups
@needs_all
def test_no_group_is_left_behind_and_those_of_the_dead_are_swept(room: Cell) -> None:
    child = os.fork()
    if child == 0:
        cgroups._make(VERSION, PARENTS, LIMITS)
        os._exit(0)
    os.waitpid(child, 0)

    def left() -> list[str]:
        ours = (f"airlock-{os.getpid()}-", f"airlock-{child}-")
        return [name for folder in PARENTS for name in os.listdir(folder) if name.startswith(ours)]

    assert left(), "the control: a killed run leaves one"
    assert room.run("pass", limits=LIMITS).limits == VERSION
    assert left() == []


@needs_groups
@needs_all
def test_a_stage_does_not_see_where_its_group_is(room: Cell) -> None:
    room.run("print(open('/proc/self/cgroup').read())", limits=LIMITS)
    assert "airlock-" not in room.output and "::/" in room.output


@as_root
def test_whoever_may_not_make_groups_is_told_so() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(65534, 65534, 65534)
        os.setresuid(65534, 65534, 65534)
        os.write(writer, cgroups.offered.__wrapped__()[0].encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        assert pipe.read() == cgroups.NONE


shares_the_hierarchy = pytest.mark.xdist_group("cgroup2")
"""There is one hierarchy of version 2 a machine, wherever it is mounted: what one test hands down in it or takes back
holds for another process too.
"""


@pytest.fixture
def unified(tmp_path: Path) -> Iterator[Path]:
    """A real hierarchy of version 2, with a controller that version 1 has not taken here."""
    from airlock.wall import kernel

    point = tmp_path / "cgroup2"
    point.mkdir()
    try:
        kernel.mount("none", str(point), "cgroup2", 0)
    except OSError:
        pytest.skip("no cgroup2 can be mounted here")
    try:
        control = point / "cgroup.subtree_control"
        if "hugetlb" not in (point / "cgroup.controllers").read_text().split():
            pytest.skip("this machine's version 2 has neither memory nor another controller to try")
        before = control.read_text().split()
        control.write_text("+hugetlb")
        yield point
        if "hugetlb" not in before:
            with suppress(OSError):
                control.write_text("-hugetlb")
    finally:
        kernel.detach(str(point))


@shares_the_hierarchy
@as_root
@needs_all
def test_version_2_on_a_real_hierarchy(room: Cell, unified: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in mountinfo, made, limited, joined and removed. Only which files hold the limits is changed:
    memory and pids belong to version 1 on a machine that has it.
    """
    limit = (
        next(path.name for path in unified.glob("*/hugetlb.*.max"))
        if list(unified.glob("*/hugetlb.*.max"))
        else "hugetlb.2MB.max"
    )
    monkeypatch.setattr(cgroups, "_NEEDED", ("hugetlb",))
    monkeypatch.setitem(cgroups._FILES, cgroups.VERSION_2, {limit: "memory", "memory.swap.max?": "0"})
    version, parents = cgroups.offered.__wrapped__()
    assert version == cgroups.VERSION_2 and len(parents) == 1
    monkeypatch.setattr(cgroups, "offered", lambda: (version, parents))
    seen: list[str] = []
    outcome = room.run(
        "import time; time.sleep(0.5)",
        limits=LIMITS,
        on_start=lambda launcher: seen.extend(
            [*Path(f"/proc/{launcher}/cgroup").read_text().split(), *map(str, parents[0].glob("airlock-*/"))]
        ),
    )
    assert outcome.limits == cgroups.VERSION_2 and outcome.returncode == 0, room.output
    assert any(line.startswith(f"0::/airlock-{os.getpid()}-") for line in seen), seen
    assert not list(parents[0].glob(f"airlock-{os.getpid()}-*"))


@shares_the_hierarchy
@as_root
def test_a_hierarchy_of_version_2_without_its_controllers_is_not_taken(unified: Path) -> None:
    """The control: here memory and pids are not handed down in it."""
    version, _ = cgroups.offered.__wrapped__()
    assert version != cgroups.VERSION_2 or {"memory", "pids"} <= set(
        (unified / "cgroup.subtree_control").read_text().split()
    )
