"""A stage run by root is a user of its own that owns nothing; every stage has limits; its first process tells
nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airlock.errors import BoundaryError, DiskFull
from airlock.run import paths
from airlock.wall import disks, kernel, layers
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


def run_held(
    room: Cell, code: str, wanted: frozenset[layers.Layer] = layers.ALL, *, insist: bool = False
) -> int:
    """With dep and staging opened beforehand, as the runner does; the user number it ran as."""
    with (
        paths.hold(room.base, ["data/released/table"]) as held,
        paths.hold_folder(room.staging, "/outs") as staging,
    ):
        grants = room.grants()
        given = replace(
            grants, read=grants.read[:-1], write=(), held=tuple(held.values()), held_write=(staging,)
        )
        outcome = room.run(code, wanted, grants=given, insist=insist)
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


@pytest.fixture
def unmapped(room: Cell) -> Iterator[Path]:
    """Staging on a file system that cannot show its files as another user's."""
    try:
        kernel.mount("none", str(room.staging), "ramfs", 0, "mode=700")
    except OSError:
        pytest.skip("no ramfs can be mounted here")
    yield room.staging
    kernel.detach(str(room.staging))


@needs_all
@as_root
def test_a_stage_that_would_stay_root_is_told_of_and_refused_where_all_is_insisted_on(
    room: Cell, unmapped: Path
) -> None:
    assert run_held(room, "open('/outs/x', 'w').write('made')") == 0
    assert (unmapped / "x").read_text() == "made"
    with pytest.raises(BoundaryError, match="user of its own"):
        run_held(room, "open('/outs/y', 'w').write('made')", insist=True)
    assert not (unmapped / "y").exists()


@needs_all
@as_root
def test_where_files_can_be_shown_to_it_nothing_is_refused(room: Cell) -> None:
    """The control."""
    assert run_held(room, "pass", insist=True) > 1 << 30


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
import os
for name in ("mem", "maps", "environ", "fd", "cwd", "root", "auxv"):
    path = f"/proc/1/{name}"
    try:
        link = name in ("cwd", "root")
        print("got in", os.listdir(path) if name == "fd" else os.readlink(path) if link else open(path, "rb").read(1))
    except OSError as error:
        print(type(error).__name__)
open("/proc/self/maps", "rb").read(1)
print("about itself it can read", flush=True)
"""
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


FILLER = """
import os, sys, time
for number in range(1000):
    with open(os.path.join(sys.argv[1], str(number)), "wb") as file:
        file.write(bytes(1 << 20))
    if number >= 20:
        time.sleep(0.05)
    if number >= int(sys.argv[2]):
        break
print("all of it", flush=True)
"""


@needs_all
def test_a_stage_is_ended_before_a_disk_is_full(room: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each file is small, and the ledger lies on the same disk as a checkpoint."""
    program = [sys.executable, "-c", FILLER, str(room.staging)]
    assert room.run("", argv=[*program, "2"]).returncode == 0 and room.output == "all of it\n", "the control"
    left = shutil.disk_usage(room.staging).free - (30 << 20)
    monkeypatch.setattr(disks, "_reserve", lambda folder: disks.Reserve(folder, left, 0))
    with pytest.raises(DiskFull, match="nearly full"):
        room.run("", argv=[*program, "900"])
    assert len(list(room.staging.iterdir())) < 800, "long before it was done"


def test_of_every_disk_something_is_left_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (kept,) = disks.reserves([tmp_path, tmp_path])
    assert 0 < kept.space <= disks.RESERVE_BYTES and not kept.is_touched
    for space, files in ((kept.space - 1, kept.files), (kept.space, kept.files - 1)):
        monkeypatch.setattr(disks, "_free", lambda folder, answer=(space, files): answer)
        assert kept.is_touched
    monkeypatch.setattr(disks, "_free", lambda folder: (1000, 0))
    assert disks.reserves([tmp_path]) == (disks.Reserve(tmp_path, 250, 0),)
    assert not disks.reserves([tmp_path])[0].is_touched, "little, and enough to start"


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


SEARCH = """
import os, stat, sys
found, tried, read = set(), 0, 0
def look(path):
    global tried, read
    for name in sorted(os.listdir(path)):
        place = f"{path}/{name}"
        try:
            status = os.lstat(place)
            if stat.S_ISDIR(status.st_mode) and name not in ("fd", "task", "map_files"):
                look(place)
            elif stat.S_ISLNK(status.st_mode):
                found.update(word for word in words if word in os.readlink(place))
            elif stat.S_ISREG(status.st_mode):
                tried += 1
                with open(place, "rb", buffering=0) as file:
                    os.set_blocking(file.fileno(), False)
                    text = file.read(1 << 20) or b""
                read += 1
                found.update(word for word in words if word.encode() in text)
        except OSError:
            pass
words = [word[::-1] for word in sys.argv[1:]]
look("/proc")
print(sorted(found), tried > 100, read > 5)
"""


@needs_all
def test_no_file_of_proc_names_a_folder_of_the_machine(room: Cell) -> None:
    """Staging, checkpoints and raw files come from folders whose names are the machine's business."""
    elsewhere = room.base / "airlock-home"
    elsewhere.mkdir()
    words = ["airlock-home"[::-1]]  # or its own command line would name it

    def run(wanted: frozenset[layers.Layer]) -> str:
        with (
            paths.hold(room.base, ["data/released/table"]) as held,
            paths.hold_folder(elsewhere, "/outs") as staging,
        ):
            grants = room.grants()
            given = replace(
                grants, read=grants.read[:-1], write=(), held=tuple(held.values()), held_write=(staging,)
            )
            argv = [sys.executable, "-I", "-S", "-c", SEARCH, *words]
            assert room.run("", wanted, grants=given, argv=argv).returncode == 0, room.output
        return room.output.strip()

    assert run(layers.ALL) == "[] True True"
    bare = layers.ALL - {layers.Layer.LANDLOCK}
    assert run(bare) == "['airlock-home'] True True", "the control: without Landlock, mountinfo tells it"


@needs_all
def test_what_hangs_on_a_file_beside_its_bytes_is_not_read(room: Cell) -> None:
    """Extended attributes: no hash counts them, and one of them holds 64 KiB."""
    try:
        os.setxattr(room.dep, "user.records", b"a patient")
    except OSError:
        pytest.skip("this file system has no such attributes")
    code = f"""
import os, shutil
for ask in (lambda: os.getxattr({str(room.dep)!r}, "user.records"), lambda: os.listxattr({str(room.dep)!r})):
    try:
        print(ask())
    except OSError as error:
        print(error.strerror)
shutil.copy2({str(room.dep)!r}, "staging/copy")
"""
    assert room.run(code).returncode == 0 and room.output == "Operation not supported\n" * 2, room.output
    room.run(code, layers.ALL - {layers.Layer.SECCOMP})
    assert "a patient" in room.output, "the control"
