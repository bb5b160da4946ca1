"""New namespaces and a new root: a stage sees its grants, a private /proc, a few devices, and nothing else.

Runs in the launcher. Every source is cloned before anything is mounted, so no mount can hide or replace what
comes later.
"""

from __future__ import annotations

import os
import select
import struct

from airlock.wall import kernel

TYPE_CHECKING = False  # `typing` itself would cost the launcher 4 ms
if TYPE_CHECKING:
    from airlock.wall.launch_plan import LaunchPlan, Mount

_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_NEW_ALL = (
    _NEWNS | 0x02000000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
)  # + cgroup, uts, ipc, pid, net
_PRIVATE = 0x4000 | 0x40000  # MS_REC | MS_PRIVATE
READ_ONLY, NO_SETUID, NO_DEVICES, NO_EXECUTE = 1, 2, 4, 8
_CLONE_TREE, _NO_FOLLOW = 1 | 0x80000, 0x100
_MOVE_EMPTY_PATH = 4
_MARK_MOUNT, _OPENED = 0x1 | 0x10, 0x20
_MAP_OWNERS = 0x00100000
EPERM, _ESTALE = 1, 116

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


def hide_host(plan: LaunchPlan) -> None:
    """Without a new root: a fresh /proc, and a /dev/shm with nothing but the grants in it, over the machine's
    own.
    """
    kernel.mount("none", "/", "", _PRIVATE)
    kept = [mount for mount in plan["mounts"] if mount["place"].startswith(SHARED_MEMORY + "/")]
    trees = [_source(mount) for mount in kept]
    _mount_proc("/proc", writable=plan["proc_writable"])
    _mount_memory(SHARED_MEMORY, "1777")
    for tree, mount in zip(trees, kept, strict=True):
        _make_place(mount["place"], mount["folder"])
        _attach(tree, mount["place"], mount["attributes"])


def new_root(plan: LaunchPlan, maps: dict[tuple[int, int], int]) -> int:
    """Build a root of nothing but the plan's mounts and links, and make it this process's root.

    Args:
        plan: what to mount.
        maps: from `owner_maps`.

    Returns:
        The user number that the stage is to take, whose files those of the mounts now seem to be; 0 to keep
        this one.
    """
    kernel.mount("none", "/", "", _PRIVATE)
    trees = [_source(mount) for mount in plan["mounts"]]
    identity = _give(trees, plan, maps)
    # Any folder will do as the place of the new root; only this process sees it.
    _mount_memory(plan["scratch"], "755")
    os.chdir(plan["scratch"])
    private = os.umask(
        0o022
    )  # the folders on the way are empty, and a stage with a number of its own goes through them
    os.makedirs("." + SHARED_MEMORY)
    _mount_memory("." + SHARED_MEMORY, "1777")
    for link, target in plan["links"]:
        _make_parent("." + link)
        os.symlink(target, "." + link)
    for tree, mount in zip(trees, plan["mounts"], strict=True):
        _make_place("." + mount["place"], mount["folder"])
        _attach(tree, "." + mount["place"], mount["attributes"])
    _hide(plan["hidden"])
    _furnish(plan)
    _set_attributes(kernel.AT_FDCWD, ".", READ_ONLY | NO_SETUID | NO_DEVICES)
    kernel.syscall("pivot_root", b".", b".")
    kernel.detach(".")
    os.chdir("/")
    os.umask(private)
    return identity


def owner_maps(plan: LaunchPlan) -> dict[tuple[int, int], int]:
    """For every owner of a mount, a user namespace that maps its numbers to the stage's: it is only ever used
    as a table.

    To be made before `separate`: /proc must still be that of this process. Empty where it cannot be done.
    """
    if not plan["identity"]:
        return {}
    owners = {
        (status.st_uid, status.st_gid) for status in map(os.stat, {one["source"] for one in plan["mounts"]})
    }
    try:
        return {owner: _map(owner, plan["identity"]) for owner in owners}
    except OSError:
        return {}


def _map(owner: tuple[int, int], identity: int) -> int:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            kernel.unshare(_NEWUSER)
            os.write(writer, b".")
            select.poll().poll()
        finally:
            os._exit(1)
    os.close(writer)
    try:
        if not os.read(reader, 1):
            raise OSError(EPERM, "unshare: no user namespace")
        _write(f"/proc/{child}/uid_map", f"{owner[0]} {identity} 1")
        _write(f"/proc/{child}/gid_map", f"{owner[1]} {identity} 1")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(reader)
        os.kill(child, 9)
        os.waitpid(child, 0)


def _give(trees: list[int], plan: LaunchPlan, maps: dict[tuple[int, int], int]) -> int:
    """Show the owners' files as those of the stage's own user, by mounts that map numbers: nothing changes on
    the disk.

    Only if it works for all that is held (deps and outs); of the rest, what everyone may read stays readable.
    """
    if not maps:
        return 0
    # Held ones first: if one of them fails, none of the others was changed.
    for held in (True, False):
        for tree, mount in zip(trees, plan["mounts"], strict=True):
            if held == (mount["descriptor"] >= 0) and not _map_owner(tree, maps) and held:
                return 0
    return plan["identity"]


def _map_owner(tree: int, maps: dict[tuple[int, int], int]) -> bool:
    status = os.fstat(tree)
    try:
        words = struct.pack("<QQQQ", _MAP_OWNERS, 0, 0, maps[status.st_uid, status.st_gid])
        kernel.syscall(
            "mount_setattr", tree, b"", kernel.AT_EMPTY_PATH | kernel.AT_RECURSIVE, words, len(words)
        )
    except (OSError, KeyError):  # a file system that cannot
        return False
    return True


def _furnish(plan: LaunchPlan) -> None:
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


def _source(mount: Mount) -> int:
    """A copy of the mount at `source`; where it is held, of what is held.

    A descriptor from outside belongs to a mount outside, which cannot be copied from in here. So the name is
    looked up again, without links, and must lead to what is held, which cannot go away meanwhile: there is no
    moment to swap it in.
    """
    if mount["descriptor"] < 0:
        return _clone(mount["source"])
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        found = kernel.open_beneath(root, mount["source"][1:])
    finally:
        os.close(root)
    try:
        ours, theirs = os.fstat(found), os.fstat(mount["descriptor"])
        if (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino):
            raise OSError(_ESTALE, f"it was replaced while the stage was being started ({mount['source']})")
        flags = _CLONE_TREE | kernel.AT_RECURSIVE | kernel.AT_EMPTY_PATH
        return kernel.syscall("open_tree", found, b"", flags)
    finally:
        os.close(found)


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
    """A fresh procfs. Where it must be writable (CUDA names its threads there), only the processes' own
    folders are: whoever
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
    """A mount point. Below an earlier mount it exists already, so nothing is ever created on the machine's
    own disk.
    """
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
