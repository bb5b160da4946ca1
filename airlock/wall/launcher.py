"""The small program between the runner and a stage: raises the walls, tries them, starts the stage, and sees
that nothing outlives it.

It is started afresh (`python -I -S`, 13 ms) and not forked from the runner: a fork would carry the master key
into the sandbox (the first process of the new pid namespace never execs) and the locks of the runner's
threads with it.

    runner -> launcher -> first process of the namespace -> stage
              (outside)   (inside, confined like the stage, reaps)

The launcher waits for whichever comes first: the end of the stage, or the end of its stdin, which the runner
holds open as long as it lives. Imports are few because each costs start-up time.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import resource
import select
import sys

from airlock.wall import capabilities, kernel, landlock, namespaces, seccomp

TYPE_CHECKING = False  # `typing` itself would cost 4 ms
if TYPE_CHECKING:
    from typing import NoReturn

    from airlock.wall.launch_plan import LaunchLimits, LaunchPlan

_SIGKILL = 9
_CLOSE_ON_EXEC = 4
_LAST_DESCRIPTOR = 0xFFFFFFFF
_SETUP_FAILED = 71
HOLE, STARTED = "hole: ", b"started as "
NO_IDENTITY = "its files cannot be shown to a user of its own, and it would run as root"


def main() -> int:
    """Run one plan; the exit status is the stage's, or 128 + the signal that ended it."""
    plan = _receive()
    plan["report"] = fcntl.fcntl(plan["report"], fcntl.F_DUPFD_CLOEXEC, 64)
    try:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        _no_core_dumps()
        for group in plan["groups"]:
            os.write(group, b"0")
        os.umask(0o077)
        maps = namespaces.owner_maps(plan)
        if "namespaces" in plan["layers"]:
            namespaces.separate()
        child = os.fork()
        if child == 0:
            _inside(plan, maps)
    except Exception as error:
        _fail(plan, error)
    return _guard(child, plan)


def _receive() -> LaunchPlan:
    length = int.from_bytes(_read(4), "little")
    plan: LaunchPlan = marshal.loads(_read(length))
    return plan


def _read(length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = os.read(0, length - len(data))
        if not part:
            os._exit(_SETUP_FAILED)
        data += part
    return data


def _fail(plan: LaunchPlan, error: Exception) -> NoReturn:
    os.write(plan["report"], str(getattr(error, "strerror", None) or repr(error)).encode())
    os._exit(_SETUP_FAILED)


def _no_core_dumps() -> None:
    """1, not 0: a core_pattern that is a pipe gets the dump whatever the limit is, except for exactly 1."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    limit = 0 if hard == 0 else 1
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))


def _guard(child: int, plan: LaunchPlan) -> int:
    """Outside the sandbox: wait for the end of the stage or of the runner, then leave no process behind."""
    if "namespaces" in plan["layers"]:
        kernel.syscall("close_range", 3, _LAST_DESCRIPTOR, 0)
    else:
        _pin(child)
    poll = select.poll()
    ended = os.pidfd_open(child)
    poll.register(ended, select.POLLIN)
    poll.register(0, 0)  # only its end is of interest
    if not any(descriptor == ended for descriptor, _ in poll.poll()):
        os.kill(child, _SIGKILL)
    _, status = os.waitpid(child, 0)
    _end_orphans()
    return _exit_status(status)


def _end_orphans() -> None:
    """Where no pid namespace ends them: whatever the stage left behind is now a child of this subreaper."""
    while True:
        for child in _children():
            os.kill(child, _SIGKILL)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return


def _children() -> list[int]:
    own, found = os.getpid(), []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    if int(file.read().rsplit(b")", 1)[1].split()[1]) == own:
                        found.append(int(name))
            except OSError:
                continue
    return found


def _exit_status(status: int) -> int:
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _inside(plan: LaunchPlan, maps: dict[tuple[int, int], int]) -> NoReturn:
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, _SIGKILL)
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        _deafen()
        identity = 0
        if "root" in plan["layers"]:
            identity = namespaces.new_root(plan, maps)
            if plan["insist"] and identity != plan["identity"]:
                raise OSError(0, NO_IDENTITY)
        elif "namespaces" in plan["layers"]:
            namespaces.hide_host(plan)
        os.chdir(plan["cwd"])
        _limit(plan["limits"])
        if "namespaces" in plan["layers"]:
            go, ready = os.pipe()
            # The plan is in this memory, with paths of the machine: not to be read by the stage.
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
            stage = os.fork()
            if stage:
                _accompany(plan, identity, stage, ready)
            os.close(ready)
            if not os.read(go, 1):
                os._exit(_SETUP_FAILED)
        _restrict(plan, identity)
        # A change of credentials clears it.
        kernel.prctl(kernel.PR_SET_PDEATHSIG, _SIGKILL)
        kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
        _start(plan)
    except Exception as error:
        _fail(plan, error)


def _accompany(plan: LaunchPlan, identity: int, stage: int, ready: int) -> NoReturn:
    """As the first process of the namespace, confined like the stage: let it start, then reap to the end."""
    _restrict(plan, identity)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, _SIGKILL)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    os.dup2(ready, 0)
    _pin(stage)
    os.write(0, b".")
    _reap(stage)


def _pin(process: int) -> None:
    """Keep a process's entries in /proc open, and nothing else: a rule of Landlock is about an entry in
    memory, which the kernel may otherwise forget, and make another one.
    """
    kernel.syscall("close_range", 3, _LAST_DESCRIPTOR, 0)
    for name in kernel.OWN_PROC:
        os.open(f"/proc/{process}/{name}", os.O_PATH)


def _limit(limits: LaunchLimits) -> None:
    """Never above what is set already; 0 is no limit."""
    for kind, most in (
        (resource.RLIMIT_DATA, limits["memory"]),
        (resource.RLIMIT_NPROC, limits["processes"]),
        (resource.RLIMIT_FSIZE, limits["file_size"]),
    ):
        _, hard = resource.getrlimit(kind)
        if most and (hard == resource.RLIM_INFINITY or most < hard):
            resource.setrlimit(kind, (most, most))


def _deafen() -> None:
    """A terminal is open for reading too: a stage may write to it, but not hear what the user types."""
    for descriptor in (1, 2):
        if os.isatty(descriptor):
            os.dup2(os.open(f"/proc/self/fd/{descriptor}", os.O_WRONLY | os.O_NOCTTY), descriptor)


def _restrict(plan: LaunchPlan, identity: int) -> None:
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    if "capabilities" in plan["layers"]:
        capabilities.drop(identity)
    if "landlock" in plan["layers"]:
        landlock.restrict(
            [
                (path.replace("/proc/self", f"/proc/{os.getpid()}") if folder < 0 else path, access, folder)
                for path, access, folder in plan["rules"]
            ]
        )
    if "seccomp" in plan["layers"]:
        seccomp.install(plan["filter"])


def _reap(stage: int) -> NoReturn:
    """As the first process of the namespace: when it ends, the kernel ends all others in there."""
    while True:
        child, status = os.waitpid(-1, 0)
        if child == stage:
            os._exit(_exit_status(status))


def _start(plan: LaunchPlan) -> NoReturn:
    os.setsid()
    _try_walls(plan)
    copies = {
        child: fcntl.fcntl(parent, fcntl.F_DUPFD_CLOEXEC, 64) for child, parent in plan["descriptors"].items()
    }
    kernel.syscall("close_range", 3, _LAST_DESCRIPTOR, _CLOSE_ON_EXEC)
    for child, copy in copies.items():
        os.dup2(copy, child)
    os.write(plan["report"], STARTED + b"%d;" % os.getuid())
    os.execve(plan["argv"][0], plan["argv"], plan["environment"])


def _try_walls(plan: LaunchPlan) -> None:
    """Attack each wall once from the inside: what is reported as in force has been seen to hold in this very
    run.
    """
    layers = plan["layers"]
    if plan["canary"] and _can_open(plan["canary"]):
        raise OSError(0, HOLE + "the canary could be read")
    if "root" in layers and "landlock" in layers and _can_open(namespaces.WITNESS):
        raise OSError(0, HOLE + "Landlock is not in force")
    if "landlock" in layers and any(_can_open(f"/proc/{one}/mountinfo") for one in ("self", 1)):
        raise OSError(0, HOLE + "the machine's folders can be seen in /proc")
    if "capabilities" in layers and capabilities.held():
        raise OSError(0, HOLE + "capabilities are still held")
    if "seccomp" in layers and not _refuses_unshare():
        raise OSError(0, HOLE + "seccomp is not in force")
    if "namespaces" in layers and os.getppid() != 1:
        raise OSError(0, HOLE + "the pid namespace is not private")


def _can_open(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


def _refuses_unshare() -> bool:
    """unshare(0) changes nothing and is always allowed, but by the filter."""
    try:
        kernel.unshare(0)
    except OSError:
        return True
    return False


if __name__ == "__main__":
    sys.exit(main())
