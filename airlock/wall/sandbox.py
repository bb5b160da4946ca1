"""Run one program behind the wall: `run` starts the launcher, watches, and tells how it ended and what was
read.
"""

from __future__ import annotations

import marshal
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from airlock.errors import BoundaryError, DiskFull, StageFailed
from airlock.wall import cgroups, disks, kernel
from airlock.wall.grants import Grants, Held, python_grants
from airlock.wall.launch_plan import EMPTY_PLAN, NO_LIMITS, NOWHERE, LaunchLimits, LaunchPlan, Mount
from airlock.wall.launcher import HOLE, STARTED
from airlock.wall.layers import ALL, Layer
from airlock.wall.mount_plan import draw
from airlock.wall.namespaces import NO_DEVICES
from airlock.wall.recorder import Recorder, record

__all__ = ["Grants", "Outcome", "python_grants", "run"]

_LAUNCH = (
    "import sys; sys.path.insert(0, sys.argv[1]); from airlock.wall.launcher import main; sys.exit(main())"
)
_CODE = Path(__file__).resolve().parents[2]
_PATIENCE = 10.0  # seconds
# far above what systems give out, and below 2^31, which some programs take for the last number
_FIRST_USER = 0x7A000000
_INTERVAL = 200  # milliseconds


@dataclass(frozen=True)
class Outcome:
    """How a confined run ended.

    Attributes:
        returncode: exit status of the program, or 128 + the signal that ended it.
        layers: what was in force, each tried inside before the program started.
        reads: which watched paths were opened; None is unknown.
        recorder: what watched, or why nothing did.
        user: the user number that the program ran as.
        limits: what held it to its limits: `cgroup v2` or `cgroup v1` as a whole, `rlimits` each process.
        out_of_memory: whether the kernel ended it because the whole took more than it may.
    """

    returncode: int
    layers: frozenset[Layer]
    reads: tuple[str, ...] | None
    recorder: str
    user: int
    limits: str = cgroups.NONE
    out_of_memory: bool = False


def run(
    argv: Sequence[str],
    grants: Grants,
    layers: frozenset[Layer],
    *,
    pass_fds: Mapping[int, int],
    stdout: IO[bytes] | int | None,
    stderr: IO[bytes] | int | None,
    cwd: Path,
    scratch: Path,
    watch: Sequence[Path] = (),
    guarded: Sequence[Path] = (),
    limits: LaunchLimits = NO_LIMITS,
    insist: bool = False,
    timeout: float | None = None,
    on_start: Callable[[int], None] | None = None,
) -> Outcome:
    """Run `argv` with nothing but `grants`, to its end; everything it started is gone when this returns.

    Args:
        argv: the program, by its absolute path, and its arguments.
        grants: all that it may touch.
        layers: the layers to raise, from `layers.choose`.
        pass_fds: descriptors to hand over, child's number to ours; all others are closed.
        stdout: as for subprocess.
        stderr: as for subprocess.
        cwd: working folder.
        scratch: its private, empty TMPDIR and HOME.
        watch: files and folders whose opening is to be recorded.
        guarded: those of which only opens by the program count, because others open them all the time (keys,
            ledger).
        limits: on memory, processes and files.
        insist: refuse rather than run as root, where root cannot give it a user of its own.
        timeout: seconds until it is ended by force.
        on_start: called with the process id of the launcher once the program runs behind the wall.

    Raises:
        BoundaryError: if a wall could not be raised or did not hold; the program was not started.
        StageFailed: after `timeout`, or before a disk is full that it writes to.
    """
    if Layer.ROOT in layers and Layer.NAMESPACES not in layers:
        raise BoundaryError("a new root needs namespaces of its own: take the layers that `choose` gives")
    _check_canary(grants, layers)
    recorder = record(watch, grants, layers, guarded)
    report, launchers_end = os.pipe()
    with ExitStack() as stack:
        stack.callback(recorder.close)
        stack.callback(os.close, report)
        ours = stack.enter_context(ExitStack())
        ours.callback(os.close, launchers_end)
        group, members = _group(limits, stack)
        held = (one.descriptor for one in (*grants.held, *grants.held_write))
        given = (launchers_end, *pass_fds.values(), *((recorder.descriptor,) if recorder.marks else ()))
        process = _launch((*given, *held, *members), stdout, stderr)
        try:
            # While the launcher's Python starts, the plan is drawn.
            plan = _plan(argv, grants, layers, recorder, limits, scratch=scratch.resolve(), cwd=cwd.resolve())
            plan["report"], plan["descriptors"] = launchers_end, dict(pass_fds)
            plan["groups"], plan["insist"] = members, insist
            _send(process, plan)
            ours.close()
            kept = disks.reserves((scratch, *grants.write, *(one.path for one in grants.held_write)))
            returncode, user = _watch(process, report, recorder, timeout, on_start, kept)
        finally:
            _end(process)
        version, full = (group.version, group.ran_out_of_memory) if group else (cgroups.NONE, False)
        return Outcome(returncode, layers, recorder.reads(), recorder.name, user, version, full)


def _group(limits: LaunchLimits, stack: ExitStack) -> tuple[cgroups.Group | None, list[int]]:
    """A control group for the launcher and all below it, and how to become a member; none without limits."""
    group = cgroups.make(limits) if limits["memory"] or limits["processes"] else None
    if group is None:
        return None, []
    stack.callback(group.remove)
    members = group.open_members()
    for descriptor in members:
        stack.callback(os.close, descriptor)
    return group, members


def trial() -> Outcome:
    """A program that does nothing, behind all layers, with one folder that is held: for `airlock doctor`."""
    with tempfile.TemporaryDirectory() as folder:
        canary, held, scratch = (Path(folder, name).resolve() for name in ("canary", "held", "scratch"))
        canary.write_bytes(b"")
        held.mkdir()
        scratch.mkdir()
        descriptor = os.open(held, os.O_PATH | os.O_CLOEXEC)
        try:
            grants = replace(python_grants("open"), held=(Held(held, descriptor),), canary=canary)
            argv = [sys.executable, "-I", "-S", "-c", ""]
            null = subprocess.DEVNULL
            return run(argv, grants, ALL, pass_fds={}, stdout=null, stderr=null, cwd=scratch, scratch=scratch)
        finally:
            os.close(descriptor)


def _check_canary(grants: Grants, layers: frozenset[Layer]) -> None:
    """A canary that cannot be read outside either proves nothing."""
    if not layers & {Layer.ROOT, Layer.LANDLOCK}:
        return
    if grants.canary is None or not grants.canary.is_file() or not os.access(grants.canary, os.R_OK):
        raise BoundaryError(
            "the canary is not a readable file: nothing would show that the wall holds; run `airlock doctor`"
        )


def _plan(
    argv: Sequence[str],
    grants: Grants,
    layers: frozenset[Layer],
    recorder: Recorder,
    limits: LaunchLimits,
    *,
    scratch: Path,
    cwd: Path,
) -> LaunchPlan:
    blueprint = draw(grants, layers, scratch=scratch, cwd=cwd, architecture=kernel.ARCHITECTURE)
    # CUDA maps more than it uses.
    limits = LaunchLimits(
        memory=0 if grants.devices else limits["memory"],
        processes=limits["processes"],
        file_size=limits["file_size"],
    )
    return {
        **EMPTY_PLAN,
        "argv": list(argv),
        "canary": os.path.realpath(grants.canary or "") if layers & {Layer.ROOT, Layer.LANDLOCK} else "",
        "cwd": str(cwd),
        "environment": _environment(grants, scratch),
        "filter": blueprint.filter,
        "hidden": list(blueprint.hidden),
        "identity": _identity(layers),
        "layers": [str(layer) for layer in layers],
        "limits": limits,
        "links": list(blueprint.links),
        "marks": _with_submounts(blueprint.mounts) if recorder.marks else [],
        "mounts": list(blueprint.mounts),
        "proc_writable": bool(grants.devices),
        "recorder": recorder.descriptor,
        "rules": list(blueprint.rules),
        "scratch": str(scratch),
    }


def _identity(layers: frozenset[Layer]) -> int:
    """A user number that owns nothing and that no other run has: for root only, and where the paths can be
    shown to it.
    """
    whole = {Layer.ROOT, Layer.CAPABILITIES} <= layers
    return _FIRST_USER + os.getpid() if os.geteuid() == 0 and whole else 0


def _with_submounts(mounts: Sequence[Mount]) -> list[str]:
    """All but devices, the writable ones too. A mark holds for one mount; folders may have others below."""
    with open("/proc/self/mountinfo") as file:
        points = [_unescape(line.split()[4]) for line in file]
    found = []
    for mount in mounts:
        if mount["attributes"] & NO_DEVICES:
            below = [point for point in points if point.startswith(mount["source"] + "/")]
            found += [mount["place"], *(mount["place"] + point[len(mount["source"]) :] for point in below)]
    return found


def _unescape(point: str) -> str:
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), point)


def _environment(grants: Grants, scratch: Path) -> dict[str, str]:
    private = {"HOME": str(scratch), "TMPDIR": str(scratch), "XDG_CACHE_HOME": str(scratch / ".cache")}
    return {**grants.environment, **private}


def _launch(
    given: tuple[int, ...], stdout: IO[bytes] | int | None, stderr: IO[bytes] | int | None
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LAUNCH, str(_CODE)],
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=stderr,
        pass_fds=given,
        env={},
        cwd="/",
        start_new_session=True,  # Ctrl-C is for the runner, which then ends the launcher in order
    )


def _send(process: subprocess.Popen[bytes], plan: LaunchPlan) -> None:
    data = marshal.dumps(dict(plan))
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it ended at once: its status tells
        process.stdin.write(len(data).to_bytes(4, "little") + data)
        process.stdin.flush()  # and left open: its end is the launcher's signal to stop


def _watch(
    process: subprocess.Popen[bytes],
    report: int,
    recorder: Recorder,
    timeout: float | None,
    on_start: Callable[[int], None] | None,
    kept: Sequence[disks.Reserve],
) -> tuple[int, int]:
    """Exit status and user number."""
    user = NOWHERE
    deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
    ended = os.pidfd_open(process.pid)
    poll = select.poll()
    poll.register(report, select.POLLIN)
    poll.register(ended, select.POLLIN)
    try:
        while time.monotonic() < deadline:
            ready = {descriptor for descriptor, _ in poll.poll(_INTERVAL)}
            recorder.drain()  # now and then: to wake up for every open would slow the stage down
            if full := next((one for one in kept if one.is_touched), None):
                raise DiskFull(
                    f"the stage was ended: the disk with {full.folder} is nearly full; make room on it"
                )
            if report in ready:
                user = _check_report(_read_all(report))
                poll.unregister(report)
                if on_start:
                    on_start(process.pid)
            elif ended in ready:
                return process.wait(), user
        raise StageFailed(f"the stage was ended after {timeout:g} seconds: give it more time or less work")
    finally:
        os.close(ended)


def _read_all(descriptor: int) -> bytes:
    return b"".join(iter(lambda: os.read(descriptor, 4096), b""))


def _check_report(report: bytes) -> int:
    """The launcher says as whom it is about to start the program, or what went wrong; a silent end is no
    start.
    """
    started, separator, rest = report.partition(b";")
    if separator and not rest and started.startswith(STARTED):
        return int(started.removeprefix(STARTED))
    report = rest if started.startswith(STARTED) else report
    problem = report.decode(errors="replace") or "the launcher ended without a word"
    if problem.startswith(HOLE):
        raise BoundaryError(
            f"the wall has a hole, {problem.removeprefix(HOLE)}: the stage "
            "was not started; see `airlock doctor`"
        )
    raise BoundaryError(f"the sandbox could not be set up, {problem}: run `airlock doctor`")


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the launcher's stdin: it ends the stage and all its children, then itself."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
