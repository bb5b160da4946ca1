"""No capabilities, and no way back to them: not by a set-user-id program, not by being uid 0."""

from __future__ import annotations

import ctypes
import os
import struct

from airlock.wall import kernel

_VERSION_3 = 0x20080522
_AMBIENT_CLEAR_ALL = 4
# NOROOT, NO_SETUID_FIXUP, KEEP_CAPS off, NO_CAP_AMBIENT_RAISE, all locked: uid 0 means nothing any more.
_SECURE_BITS = 0b11101111
_EPERM, _EINVAL = 1, 22


def drop(identity: int = 0) -> None:
    """Give up every capability for good and check that none is left.

    Args:
        identity: user and group number to take on the way, while that is still allowed; 0 to stay who one is.
    """
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_CAP_AMBIENT, _AMBIENT_CLEAR_ALL)
    _close_the_way_back()
    if identity:
        os.setgroups([])
        os.setresgid(identity, identity, identity)
        os.setresuid(identity, identity, identity)
    kernel.syscall("capset", struct.pack("<Ii", _VERSION_3, 0), bytes(24))
    if held():
        raise OSError(_EPERM, "capset: capabilities are still held")


def held() -> bool:
    """Whether this process has any capability at all."""
    sets = ctypes.create_string_buffer(24)
    kernel.syscall("capget", struct.pack("<Ii", _VERSION_3, 0), sets)
    return any(sets.raw)


def _close_the_way_back() -> None:
    """Empty the bounding set. Whoever may not (an ordinary user)
    has nothing in reach: no_new_privs is set.
    """
    try:
        kernel.prctl(kernel.PR_SET_SECUREBITS, _SECURE_BITS)
        for capability in range(64):
            kernel.prctl(kernel.PR_CAPBSET_DROP, capability)
    except OSError as error:
        if error.errno not in (_EPERM, _EINVAL):  # EINVAL: past the last capability of this kernel
            raise
