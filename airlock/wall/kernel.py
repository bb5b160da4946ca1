"""The kernel by ctypes: system calls that Python does not offer, each an OSError when it fails.

Imported by the launcher inside the sandbox, so it needs nothing but `os`, `sys` and `ctypes` (start-up time counts there).
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

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_GET_SECCOMP = 1, 38, 21
PR_CAPBSET_DROP, PR_SET_SECUREBITS, PR_CAP_AMBIENT, PR_SET_CHILD_SUBREAPER = 24, 28, 47, 36

AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000


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
