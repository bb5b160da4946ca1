"""What the launcher is told, in types. The launcher imports this for the type checker only: at run time a
plan is plain values.

`marshal` carries it through a pipe, so it holds nothing but dicts, lists, tuples, strings, numbers and bytes.
"""

from __future__ import annotations

from typing import TypedDict

Rule = tuple[str, int, int]
"""A Landlock rule: path, access, and the descriptor that the path is relative to (NOWHERE: an absolute path).
"""
NOWHERE = -1


class Mount(TypedDict):
    """One path of the machine in the stage's root.

    Attributes:
        source: its real path on the machine.
        place: its path inside.
        folder: whether it is one.
        attributes: of the mount (read-only, no devices).
        descriptor: what was opened earlier and must still be what `source` leads to; NOWHERE where nothing
            was.
    """

    source: str
    place: str
    folder: bool
    attributes: int
    descriptor: int


class LaunchLimits(TypedDict):
    """Most that a stage may take; 0 is no limit.

    Attributes:
        memory: bytes, of the whole stage where there are control groups; of data per process elsewhere.
        processes: processes and threads at once.
        file_size: bytes of one file.
    """

    memory: int
    processes: int
    file_size: int


class LaunchPlan(TypedDict):
    """Everything that the launcher does, in the order in which it does it.

    Attributes:
        argv: the program, by its absolute path, and its arguments.
        canary: a file that must not be readable inside; empty for none.
        cwd: the program's working folder, inside.
        descriptors: what to hand over, the program's number to the launcher's.
        environment: all of it.
        filter: the seccomp program; empty for none.
        groups: descriptors of control groups to become a member of.
        hidden: folders inside to cover with an empty one.
        identity: user and group number for the stage; 0 to keep the runner's.
        insist: whether not to start where that number cannot be had.
        layers: names of the layers to raise.
        limits: see there.
        links: symbolic links to make inside, with their targets.
        marks: mounts inside to mark for the recorder.
        mounts: parents before children.
        proc_writable: whether processes may write to their own folders in /proc.
        recorder: its descriptor; NOWHERE for none.
        report: the descriptor to report to.
        rules: for Landlock.
        scratch: the private TMPDIR, outside and inside.
    """

    argv: list[str]
    canary: str
    cwd: str
    descriptors: dict[int, int]
    environment: dict[str, str]
    filter: bytes
    groups: list[int]
    hidden: list[str]
    identity: int
    insist: bool
    layers: list[str]
    limits: LaunchLimits
    links: list[tuple[str, str]]
    marks: list[str]
    mounts: list[Mount]
    proc_writable: bool
    recorder: int
    report: int
    rules: list[Rule]
    scratch: str


NO_LIMITS = LaunchLimits(memory=0, processes=0, file_size=0)
EMPTY_PLAN = LaunchPlan(
    argv=[],
    canary="",
    cwd="/",
    descriptors={},
    environment={},
    filter=b"",
    groups=[],
    hidden=[],
    identity=0,
    insist=False,
    layers=[],
    limits=NO_LIMITS,
    links=[],
    marks=[],
    mounts=[],
    proc_writable=False,
    recorder=NOWHERE,
    report=NOWHERE,
    rules=[],
    scratch="/tmp",
)
