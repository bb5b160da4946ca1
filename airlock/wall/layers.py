"""The five layers of the wall: which this machine offers, which a stage gets, and what a missing one leaves
open.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Literal

from airlock.errors import BoundaryError
from airlock.wall import capabilities, kernel, landlock, namespaces, seccomp
from airlock.wall.launch_plan import EMPTY_PLAN, NOWHERE

Enforcement = Literal["strict", "auto", "advisory"]


class Layer(StrEnum):
    """One wall of several; each stops what the others let through."""

    ROOT = "root"
    NAMESPACES = "namespaces"
    LANDLOCK = "landlock"
    CAPABILITIES = "capabilities"
    SECCOMP = "seccomp"


ALL = frozenset(Layer)
MINIMUM = frozenset({Layer.LANDLOCK, Layer.CAPABILITIES, Layer.SECCOMP})

MEANING: dict[Layer, str] = {
    Layer.ROOT: "sees a root with its grants and nothing else",
    Layer.NAMESPACES: "has its own processes, network, shared memory and mounts",
    Layer.LANDLOCK: "opens only what was granted, by the kernel's leave",
    Layer.CAPABILITIES: "has none of root's powers, even as root",
    Layer.SECCOMP: "cannot make the system calls that lead around walls",
}

LEFT_OPEN: dict[Layer, str] = {
    Layer.ROOT: "Names, sizes and times of files outside the grants can be seen, though none can be opened "
    "or changed. DataLoader "
    "workers cannot run, because the sockets they need would reach the machine's services.",
    Layer.NAMESPACES: "A stage can learn which process numbers are in use and, before Linux 6.12, send "
    "signals to the user's other "
    "processes; what it leaves running is ended by the launcher, not by the kernel.",
    Layer.LANDLOCK: "A file that the new root shows by mistake can be read and changed.",
    Layer.CAPABILITIES: "A stage run by root keeps root's powers: mounts, devices, other users' files.",
    Layer.SECCOMP: "Rarely used system calls reach the kernel, and with them its bugs; sockets of unusual "
    "families can be made.",
}


def probe() -> dict[Layer, str]:
    """What this machine offers, tried for real in a child process: empty if it does, otherwise why not and
    what to do about it.
    """
    return dict(_probe())


@functools.cache
def _probe() -> tuple[tuple[Layer, str], ...]:
    if not _try(_raise_all):
        return tuple((layer, "") for layer in Layer)
    return (
        (Layer.ROOT, _problem("no new root", _try(_enter_new_root), _namespace_remedy)),
        (Layer.NAMESPACES, _problem("no namespaces", _try(_separate), _namespace_remedy)),
        (Layer.LANDLOCK, _problem("no Landlock", _try(_restrict), _landlock_remedy)),
        (
            Layer.CAPABILITIES,
            _problem(
                "capabilities stay", _try(capabilities.drop), lambda: "run Airlock outside this container"
            ),
        ),
        (
            Layer.SECCOMP,
            _problem("no seccomp", _try(_filter), lambda: "use a kernel with CONFIG_SECCOMP_FILTER"),
        ),
    )


def choose(enforcement: Enforcement, *, zone: str) -> frozenset[Layer]:
    """The layers that a stage of this zone gets.

    Raises:
        BoundaryError: naming the first missing layer that `enforcement` insists on, and the remedy.
    """
    problems = probe()
    offered = frozenset(layer for layer in Layer if not problems[layer])
    needed = {"strict": ALL, "auto": MINIMUM, "advisory": frozenset()}[enforcement]
    for layer in Layer:
        if layer in needed - offered:
            raise BoundaryError(
                f"the {zone} stage was not started, layer '{layer}' is missing: {problems[layer]}"
            )
    return offered


def _problem(what: str, trouble: str, remedy: Callable[[], str]) -> str:
    return trouble and f"{what} ({trouble}): {remedy()}"


def _landlock_remedy() -> str:
    if version := landlock.version():
        return (
            f"version {version} is too old, use Linux 6.2 or newer"
            if version < landlock.OLDEST_VERSION
            else "run Airlock outside this container"
        )
    return (
        "use Linux 6.2 or newer with `landlock` in the kernel's lsm= list, outside containers that forbid it"
    )


def _namespace_remedy() -> str:
    for path, value, remedy in (
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "`sysctl kernel.apparmor_restrict_unprivileged_userns=0`",
        ),
        ("/proc/sys/kernel/unprivileged_userns_clone", "0", "`sysctl kernel.unprivileged_userns_clone=1`"),
        ("/proc/sys/user/max_user_namespaces", "0", "`sysctl user.max_user_namespaces=10000`"),
    ):
        if os.path.exists(path) and Path(path).read_text().strip() == value:
            return f"run {remedy} as root, or run Airlock as root"
    options = " ".join(f"--security-opt {name}=unconfined" for name in ("seccomp", "apparmor", "systempaths"))
    return f"in a container, start it with `{options} --cap-add SYS_ADMIN`"


def _separate() -> None:
    _in_namespaces(lambda: namespaces.hide_host(EMPTY_PLAN))


def _enter_new_root() -> None:
    _in_namespaces(lambda: namespaces.new_root(EMPTY_PLAN, {}))


def _raise_all() -> None:
    def inside() -> None:
        namespaces.new_root(EMPTY_PLAN, {})
        capabilities.drop()
        _restrict()
        _filter()

    _in_namespaces(inside)


def _in_namespaces(action: Callable[[], object]) -> None:
    """A fresh /proc can only be mounted by a process of the new pid namespace: hence a second child."""
    namespaces.separate()
    if trouble := _try(action):
        raise OSError(0, trouble)


def _restrict() -> None:
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    landlock.restrict([("/", landlock.READ_DIR, NOWHERE)])


def _filter() -> None:
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    seccomp.install(seccomp.build(kernel.ARCHITECTURE, new_root=False))


def _try(action: Callable[[], object]) -> str:
    """Do it in a child process; empty if it went well, otherwise why not."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # A process that holds keys is hidden from its own user (see secrecy.py), who then may not set up
            # a namespace for it.
            kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
            action()
            os._exit(0)
        except OSError as error:
            os.write(writer, str(error.strerror).encode())
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read().decode()
    _, status = os.waitpid(child, 0)
    return "" if status == 0 else answer or f"a trial ended with status {status}"
