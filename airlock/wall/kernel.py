"""The kernel by ctypes: system calls that Python does not offer, each an OSError when it fails.

Imported by the launcher inside the sandbox, so it needs nothing but `os`, `sys` and `ctypes` (start-up time
counts there).
"""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

ARCHITECTURE = os.uname().machine

# Calls that this package makes itself. Only the old ones differ between architectures.
_COMMON = {
    "open_tree": 428,
    "move_mount": 429,
    "close_range": 436,
    "openat2": 437,
    "mount_setattr": 442,
    "landlock_create_ruleset": 444,
    "landlock_add_rule": 445,
    "landlock_restrict_self": 446,
}
NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "capget": 125,
        "capset": 126,
        "pivot_root": 155,
        "fanotify_init": 300,
        "fanotify_mark": 301,
        "renameat2": 316,
        "seccomp": 317,
        **_COMMON,
    },
    # aarch64 is unverified: the numbers are tested against the kernel's header, no such machine has run them.
    "aarch64": {
        "capget": 90,
        "capset": 91,
        "pivot_root": 41,
        "fanotify_init": 262,
        "fanotify_mark": 263,
        "renameat2": 276,
        "seccomp": 277,
        **_COMMON,
    },
}

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_SET_DUMPABLE = 1, 38, 4
PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_CAP_AMBIENT, PR_SET_CHILD_SUBREAPER = 24, 28, 47, 36

# What a process may read about itself. Kept here because both sides need it: who writes the rules, and who
# sees to it that they stay true.
OWN_PROC = ("auxv", "cgroup", "cmdline", "comm", "environ", "limits", "maps", "stat", "statm", "status")

AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH = 0x02, 0x04, 0x08
_EPERM, _EINVAL, _ENOSYS, _ELOOP = 1, 22, 38, 40


def syscall(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Call the kernel by name.

    Raises:
        OSError: with the call's name, so that a report tells which step failed.
    """
    try:
        number = NUMBERS[ARCHITECTURE][name]
    except KeyError:
        raise OSError(38, f"{name}: not known for {ARCHITECTURE}") from None
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(name, int(_libc.syscall(ctypes.c_long(number), *words)))


def open_beneath(folder: int, path: str, flags: int = os.O_PATH) -> int:
    """Open what stands below `folder` under this name: no link is followed on the way, and `..` leads
    nowhere.

    Raises:
        OSError: ELOOP where a link stands on the way or at its end.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    words = (flags, 0, _NO_MAGIC_LINKS | _NO_LINKS | _BENEATH)
    how = b"".join(word.to_bytes(8, "little") for word in words)
    try:
        found = syscall("openat2", folder, os.fsencode(path or "."), how, len(how))
    except OSError as error:
        if error.errno not in (
            _EPERM,
            _ENOSYS,
        ):  # a kernel before 5.6, or a container that does not know the call
            raise
        return walk_beneath(folder, path, flags)
    return _no_link(found)


def walk_beneath(folder: int, path: str, flags: int = os.O_PATH) -> int:
    """The same, one name at a time."""
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    names = [name for name in path.split("/") if name not in ("", ".")]
    if path.startswith("/") or ".." in names:
        raise OSError(_EINVAL, f"not below the folder: {path}")
    place = (
        os.open(".", os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY, dir_fd=folder)
        if names[:-1]
        else os.dup(folder)
    )
    try:
        for name in names[:-1]:
            _refuse_link(name, place)
            inner = os.open(name, os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=place)
            os.close(place)
            place = inner
        if names:
            _refuse_link(names[-1], place)
        return _no_link(os.open(names[-1] if names else ".", flags, dir_fd=place))
    finally:
        os.close(place)


def _refuse_link(name: str, folder: int) -> None:
    """For the right error only: what is opened afterwards is opened without following."""
    if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode & 0o170000 == 0o120000:
        raise OSError(_ELOOP, os.strerror(_ELOOP))


def _no_link(descriptor: int) -> int:
    """O_PATH with O_NOFOLLOW opens a link itself."""
    if os.fstat(descriptor).st_mode & 0o170000 == 0o120000:
        os.close(descriptor)
        raise OSError(_ELOOP, os.strerror(_ELOOP))
    return descriptor


def prctl(option: int, value: int = 0, third: int = 0) -> int:
    """Change or ask an attribute of this process."""
    words = (ctypes.c_ulong(value), ctypes.c_ulong(third), ctypes.c_ulong(0), ctypes.c_ulong(0))
    return _checked(f"prctl {option}", int(_libc.prctl(option, *words)))


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags` for new ones."""
    _checked("unshare", int(_libc.unshare(flags)))


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """mount(2)."""
    words = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())
    _checked(f"mount {kind or target}", int(_libc.mount(*words)))


def detach(target: str) -> None:
    """umount2(2) with MNT_DETACH."""
    _checked("umount2", int(_libc.umount2(target.encode(), 2)))


def _checked(name: str, result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result
