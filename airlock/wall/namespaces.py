"""New namespaces and a new root: a stage sees its grants, a private /proc, a few devices, and nothing else.

Runs in the launcher. Every source is cloned before anything is mounted, so no mount can hide or replace what comes later.
"""

from __future__ import annotations

import os
import struct

from airlock.wall import kernel

TYPE_CHECKING = False  # `typing` itself would cost the launcher 4 ms
if TYPE_CHECKING:
    from typing import Any

    Plan = dict[str, Any]

_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_NEW_ALL = (
    _NEWNS | 0x02000000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
)  # + cgroup, uts, ipc, pid, net
_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE
READ_ONLY, NO_SETUID, NO_DEVICES, NO_EXECUTE = 1, 2, 4, 8
_CLONE_TREE, _NO_FOLLOW = 1 | 0x80000, 0x100
_MOVE_EMPTY_PATH = 4
_MARK_MOUNT, _OPENED = 0x1 | 0x10, 0x20
EPERM = 1

SHARED_MEMORY = "/dev/shm"
WITNESS = "/.witness"
"""Inside the new root but granted by no Landlock rule: whoever can open it is not restricted."""
_VOID = "/.void"


def separate() -> None:
    """Leave all namespaces; an ordinary user needs a user namespace to be allowed to."""
    uid, gid = os.getuid(), os.getgid()
    try:
        kernel.unshare(_NEW_ALL)
    except OSError as error:
        if error.errno != EPERM:
            raise
        kernel.unshare(_NEW_ALL | _NEWUSER)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")


def hide_host(plan: Plan) -> None:
    """Without a new root: a fresh /proc, and a /dev/shm with nothing but the grants in it, over the machine's own."""
    kernel.mount("none", "/", "", _PRIVATE)
    kept = [mount for mount in plan["mounts"] if mount[0].startswith(SHARED_MEMORY + "/")]
    trees = [_clone(path) for path, _, _ in kept]
    _mount_proc("/proc", writable=plan["proc_writable"])
    _mount_memory(SHARED_MEMORY, "1777")
    for tree, (path, folder, attributes) in zip(trees, kept, strict=True):
        _make_place(path, folder)
        _attach(tree, path, attributes)


def new_root(plan: Plan) -> None:
    """Build a root of nothing but the plan's mounts and links, and make it this process's root."""
    kernel.mount("none", "/", "", _PRIVATE)
    trees = [_clone(path) for path, _, _ in plan["mounts"]]
    _mount_memory(
        plan["scratch"], "755"
    )  # any folder will do as the place of the new root; only this process sees it
    os.chdir(plan["scratch"])
    os.makedirs("." + SHARED_MEMORY)
    _mount_memory("." + SHARED_MEMORY, "1777")
    for link, target in plan["links"]:
        _make_parent("." + link)
        os.symlink(target, "." + link)
    for tree, (path, folder, attributes) in zip(trees, plan["mounts"], strict=True):
        _make_place("." + path, folder)
        _attach(tree, "." + path, attributes)
    _hide(plan["hidden"])
    _furnish(plan)
    _set_attributes(kernel.AT_FDCWD, ".", READ_ONLY | NO_SETUID | NO_DEVICES)
    kernel.syscall("pivot_root", b".", b".")
    kernel.detach(".")
    os.chdir("/")


def _furnish(plan: Plan) -> None:
    os.makedirs("./proc", exist_ok=True)
    _mount_proc("./proc", writable=plan["proc_writable"])
    _make_place("." + WITNESS, folder=False)
    os.makedirs("." + plan["cwd"], exist_ok=True)
    if not os.path.lexists("./tmp"):
        os.symlink(plan["scratch"], "./tmp")
    for path in plan["marks"]:
        kernel.syscall(
            "fanotify_mark", plan["recorder"], _MARK_MOUNT, _OPENED, kernel.AT_FDCWD, f".{path}".encode()
        )


def _hide(folders: list[str]) -> None:
    os.mkdir("." + _VOID, 0o555)
    for path in folders:
        _attach(_clone("." + _VOID), "." + path, READ_ONLY)


def _clone(path: str) -> int:
    try:
        return kernel.syscall(
            "open_tree", kernel.AT_FDCWD, path.encode(), _CLONE_TREE | kernel.AT_RECURSIVE | _NO_FOLLOW
        )
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} ({path})") from None


def _attach(tree: int, place: str, attributes: int) -> None:
    _set_attributes(tree, "", attributes | NO_SETUID, kernel.AT_EMPTY_PATH | kernel.AT_RECURSIVE)
    kernel.syscall("move_mount", tree, b"", kernel.AT_FDCWD, place.encode(), _MOVE_EMPTY_PATH)
    os.close(tree)


def _set_attributes(folder: int, path: str, attributes: int, flags: int = 0) -> None:
    kernel.syscall(
        "mount_setattr", folder, path.encode(), flags, struct.pack("<QQQQ", attributes, 0, 0, 0), 32
    )


def _mount_proc(place: str, *, writable: bool) -> None:
    """A fresh procfs. Where it must be writable (CUDA names its threads there), only the processes' own folders are: whoever
    is uid 0 could otherwise set the machine's core_pattern without any capability."""
    kernel.mount("proc", place, "proc", NO_SETUID | NO_DEVICES | NO_EXECUTE | (0 if writable else READ_ONLY))
    if writable:
        for name in sorted(os.listdir(place)):
            if not name.isdigit() and not os.path.islink(f"{place}/{name}"):
                _attach(_clone(f"{place}/{name}"), f"{place}/{name}", READ_ONLY)


def _mount_memory(place: str, mode: str) -> None:
    kernel.mount("tmpfs", place, "tmpfs", NO_SETUID | NO_DEVICES, f"mode={mode}")


def _make_parent(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)


def _make_place(path: str, folder: bool) -> None:
    """A mount point. Below an earlier mount it exists already, so nothing is ever created on the machine's own disk."""
    if os.path.lexists(path):
        return
    if folder:
        os.makedirs(path)
    else:
        _make_parent(path)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
