"""System calls by number, and errors that mean "this kernel has no such thing" rather than "stopped"."""

from __future__ import annotations

import ctypes
import errno
import os
from contextlib import suppress
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
libc.mmap.restype = ctypes.c_void_p
libc.shmat.restype = ctypes.c_void_p

CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET = 0x10000000, 0x00020000, 0x40000000

MISSING = {errno.ENOSYS, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ENODEV}

NUMBERS = {
    "x86_64": {
        "pivot_root": 155,
        "process_vm_readv": 310,
        "name_to_handle_at": 303,
        "open_by_handle_at": 304,
        "perf_event_open": 298,
        "fanotify_init": 300,
        "bpf": 321,
        "userfaultfd": 323,
        "add_key": 248,
    },
    "aarch64": {
        "pivot_root": 41,
        "process_vm_readv": 270,
        "name_to_handle_at": 264,
        "open_by_handle_at": 265,
        "perf_event_open": 241,
        "fanotify_init": 262,
        "bpf": 280,
        "userfaultfd": 282,
        "add_key": 217,
    },
}[os.uname().machine] | {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "open_tree": 428,
    "clone3": 435,
    "openat2": 437,
    "pidfd_getfd": 438,
}


def check(result: int) -> int:
    if result is None or result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def call(name: str, *arguments: Any) -> int:
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return check(libc.syscall(ctypes.c_long(NUMBERS[name]), *words))


def gain_power(namespaces: int) -> None:
    """Leave the mount (or network) namespace; an ordinary user takes a user namespace along, in which
    everything is allowed.
    """
    with suppress(OSError):
        check(libc.unshare(namespaces | (CLONE_NEWUSER if os.getuid() else 0)))


def slurp(descriptor: int) -> bytes:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return os.read(descriptor, 1 << 16)
