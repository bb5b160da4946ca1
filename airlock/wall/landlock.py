"""Landlock: which files a process may open, decided by the kernel, for this process and all its children, for
ever.

Rules name inodes, not paths, and hold for everything below; nothing can be taken out again (see
`grants.cover`).
"""

from __future__ import annotations

import os
import struct

from airlock.wall import kernel

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15

READ = READ_FILE | READ_DIR
RUN = READ | EXECUTE
DEVICE = READ_FILE | WRITE_FILE | IOCTL_DEV
# An out may be a file or a folder of files, nothing that points or speaks elsewhere.
WRITE = READ | WRITE_FILE | TRUNCATE | MAKE_REG | MAKE_DIR | REMOVE_FILE | REMOVE_DIR | REFER
# DataLoader workers hand tensors over by sockets in TMPDIR and hang for ever without them.
SCRATCH = WRITE | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
_ON_A_FILE = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

OLDEST_VERSION = 3
"""Linux 6.2. Before it any file that the user owns could be emptied, whatever the rules say."""

_VERSION, _PATH_BENEATH = 1, 1
_NETWORK = 0b11  # bind and connect of TCP, since version 4
_SCOPES = 0b11  # abstract sockets and signals stay inside, since version 6


def version() -> int:
    """The kernel's Landlock version; 0 if there is none or it is switched off."""
    try:
        return kernel.syscall("landlock_create_ruleset", None, 0, _VERSION)
    except OSError:
        return 0


def handled(version: int) -> int:
    """Every file access that this version can refuse: whatever is handled and not granted is refused."""
    return (1 << 15 if version < 5 else 1 << 16) - 1


def restrict(rules: list[tuple[str, int, int]]) -> None:
    """Refuse every access to files but those of `rules`, and all of TCP, for ever. Needs no_new_privs."""
    abi = version()
    if abi < OLDEST_VERSION:
        raise OSError(38, "landlock: not offered by this kernel")
    attributes = struct.pack("<QQQ", handled(abi), _NETWORK if abi >= 4 else 0, _SCOPES if abi >= 6 else 0)
    ruleset = kernel.syscall(
        "landlock_create_ruleset", attributes, 24 if abi >= 6 else 16 if abi >= 4 else 8, 0
    )
    for path, access, folder in rules:
        _allow(ruleset, path, access & handled(abi), folder)
    kernel.syscall("landlock_restrict_self", ruleset, 0)
    os.close(ruleset)


def on_file(access: int) -> int:
    """The part of `access` that has a meaning for a file; the kernel refuses a rule with more."""
    return access & _ON_A_FILE


def _allow(ruleset: int, path: str, access: int, folder: int) -> None:
    """A path below an open folder is looked up from there, without links; the empty one is what is open
    itself.
    """
    if folder < 0:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    else:
        place = kernel.open_beneath(folder, path) if path else os.dup(folder)
    try:
        kernel.syscall("landlock_add_rule", ruleset, _PATH_BENEATH, struct.pack("<Qi", access, place), 0)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} ({path})") from None
    finally:
        os.close(place)
