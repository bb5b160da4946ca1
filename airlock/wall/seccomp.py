"""The seccomp filter: system calls that no stage needs and that lead around the other layers.

A deny list in classic BPF, written by hand: the first match answers. Calls of another architecture, of the
x32 table and those younger than this file are refused without looking at them.
"""

from __future__ import annotations

import ctypes
import struct

from airlock.wall import kernel

_COMMON = {  # numbers that all architectures share
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435,
    "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443,
    "process_mrelease": 448, "fchmodat2": 452, "statmount": 457, "listmount": 458, "setxattrat": 463,
    "getxattrat": 464, "listxattrat": 465, "removexattrat": 466, "open_tree_attr": 467, "file_setattr": 469,
}  # fmt: skip
NUMBERS: dict[str, dict[str, int]] = {
    "x86_64": {
        "ioctl": 16, "shmget": 29, "shmat": 30, "shmctl": 31, "socket": 41, "socketpair": 53, "clone": 56,
        "semget": 64, "semop": 65, "semctl": 66, "shmdt": 67, "msgget": 68, "msgsnd": 69, "msgrcv": 70,
        "msgctl": 71, "chmod": 90, "chown": 92, "lchown": 94, "ptrace": 101, "syslog": 103, "utime": 132,
        "uselib": 134, "sysfs": 139, "pivot_root": 155, "adjtimex": 159, "chroot": 161, "acct": 163,
        "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169,
        "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175,
        "delete_module": 176, "quotactl": 179, "setxattr": 188, "lsetxattr": 189, "getxattr": 191, "lgetxattr": 192,
        "fgetxattr": 193, "listxattr": 194, "llistxattr": 195, "flistxattr": 196, "removexattr": 197,
        "lremovexattr": 198, "lookup_dcookie": 212, "semtimedop": 220, "clock_settime": 227, "utimes": 235,
        "mq_open": 240, "mq_unlink": 241, "mq_timedsend": 242, "mq_timedreceive": 243, "mq_notify": 244,
        "mq_getsetattr": 245, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250,
        "inotify_init": 253, "fchownat": 260, "futimesat": 261, "fchmodat": 268, "unshare": 272,
        "utimensat": 280, "inotify_init1": 294, "perf_event_open": 298, "fanotify_init": 300,
        "fanotify_mark": 301, "name_to_handle_at": 303, "open_by_handle_at": 304, "clock_adjtime": 305,
        "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313,
        "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
        **_COMMON,
    },
    # aarch64 is unverified: the numbers are tested against the kernel's header, no such machine has run them.
    "aarch64": {
        "setxattr": 5, "lsetxattr": 6, "getxattr": 8, "lgetxattr": 9, "fgetxattr": 10, "listxattr": 11,
        "llistxattr": 12, "flistxattr": 13, "removexattr": 14, "lremovexattr": 15, "lookup_dcookie": 18,
        "inotify_init1": 26, "ioctl": 29, "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51,
        "fchmodat": 53, "fchownat": 54, "quotactl": 60, "utimensat": 88, "acct": 89, "unshare": 97,
        "kexec_load": 104, "init_module": 105, "delete_module": 106, "clock_settime": 112, "syslog": 116,
        "ptrace": 117, "reboot": 142, "sethostname": 161, "setdomainname": 162, "settimeofday": 170,
        "adjtimex": 171, "mq_open": 180, "mq_unlink": 181, "mq_timedsend": 182, "mq_timedreceive": 183,
        "mq_notify": 184, "mq_getsetattr": 185, "msgget": 186, "msgctl": 187, "msgrcv": 188, "msgsnd": 189,
        "semget": 190, "semctl": 191, "semtimedop": 192, "semop": 193, "shmget": 194, "shmctl": 195,
        "shmat": 196, "shmdt": 197, "socket": 198, "socketpair": 199, "add_key": 217, "request_key": 218,
        "keyctl": 219, "clone": 220, "swapon": 224, "swapoff": 225, "perf_event_open": 241,
        "fanotify_init": 262, "fanotify_mark": 263, "name_to_handle_at": 264, "open_by_handle_at": 265,
        "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272,
        "finit_module": 273, "bpf": 280, "userfaultfd": 282, "kexec_file_load": 294,
        **_COMMON,
    },
}  # fmt: skip
_YOUNGEST = 469  # file_setattr, Linux 6.17

_BY_ARGUMENT = frozenset({"socket", "socketpair", "clone", "clone3", "ioctl"})
# Landlock does not cover these: they change or watch a file that cannot be opened. Out of reach in a new
# root.
OUTSIDE_A_ROOT = frozenset({
    "chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "utime", "utimes", "futimesat",
    "utimensat", "setxattr", "lsetxattr", "setxattrat", "removexattr", "lremovexattr", "removexattrat",
    "file_setattr", "inotify_init", "inotify_init1",
})  # fmt: skip

# What hangs on a file beside its bytes: no hash counts it, so no stage reads it. Programs know this answer from file
# systems that have none.
ATTRIBUTES = frozenset({
    "getxattr", "lgetxattr", "fgetxattr", "getxattrat", "listxattr", "llistxattr", "flistxattr", "listxattrat",
})  # fmt: skip

AUDIT_ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
# CLONE_NEW* of clone(2): user, pid, net, ipc, uts, cgroup, mount; a time namespace needs clone3
_NEW_NAMESPACES = 0x7E020000
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_AF_UNIX = 1

ALLOW, KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, ENOSYS, EOPNOTSUPP = 1, 38, 95
_LOAD, _EQUAL, _GREATER, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16


def build(architecture: str, *, new_root: bool) -> bytes:
    """The filter for a stage, as the kernel wants it: eight bytes per instruction.

    Args:
        architecture: as uname tells it.
        new_root: whether the stage sees only its own root. There sockets of AF_UNIX reach nothing but the
            stage itself (DataLoader workers need them); without one they would reach any service on the
            machine.

    Raises:
        OSError: if there is no table for this architecture.
    """
    if architecture not in NUMBERS:
        raise OSError(ENOSYS, f"seccomp: no table for {architecture}")
    numbers = NUMBERS[architecture]
    code = [*_load(_ARCHITECTURE), *_unless(_EQUAL, AUDIT_ARCHITECTURE[architecture], KILL), *_load(_NUMBER)]
    if architecture == "x86_64":
        code += _when(_GREATER, _X32 - 1, KILL)
    code += _when(_GREATER, _YOUNGEST, _ERRNO | ENOSYS)
    code += _when(
        _EQUAL, numbers["clone3"], _ERRNO | ENOSYS
    )  # its flags are out of sight; libc falls back to clone
    for name, number in sorted(numbers.items()):
        if name not in _BY_ARGUMENT and not (new_root and name in OUTSIDE_A_ROOT):
            code += _when(_EQUAL, number, _ERRNO | (EOPNOTSUPP if name in ATTRIBUTES else EPERM))
    code += _on(numbers["clone"], [*_load(_ARGUMENT), *_when(_ANY_BIT, _NEW_NAMESPACES, _ERRNO | EPERM)])
    injection = [line for request in _TERMINAL_INJECTION for line in _when(_EQUAL, request, _ERRNO | EPERM)]
    code += _on(numbers["ioctl"], [*_load(_ARGUMENT + 8), *injection])
    only_unix = [*_load(_ARGUMENT), *_unless(_EQUAL, _AF_UNIX, _ERRNO | EPERM)]
    code += _on(numbers["socketpair"], only_unix)
    code += _on(numbers["socket"], only_unix if new_root else [_line(_RETURN, value=_ERRNO | EPERM)])
    code.append(_line(_RETURN, value=ALLOW))
    return b"".join(code)


def install(program: bytes) -> None:
    """Put the filter on this process and all its children, for ever. Needs no_new_privs."""
    code = ctypes.create_string_buffer(program, len(program))
    kernel.syscall("seccomp", 1, 0, struct.pack("<HxxxxxxQ", len(program) // 8, ctypes.addressof(code)))


def _line(operation: int, then: int = 0, otherwise: int = 0, value: int = 0) -> bytes:
    return struct.pack("<HBBI", operation, then, otherwise, value)


def _load(offset: int) -> list[bytes]:
    return [_line(_LOAD, value=offset)]


def _when(test: int, value: int, answer: int) -> list[bytes]:
    return [_line(test, 0, 1, value), _line(_RETURN, value=answer)]


def _unless(test: int, value: int, answer: int) -> list[bytes]:
    return [_line(test, 1, 0, value), _line(_RETURN, value=answer)]


def _on(number: int, body: list[bytes]) -> list[bytes]:
    """Run `body` for one call only, then allow: the accumulator no longer holds the call's number."""
    body = [*body, _line(_RETURN, value=ALLOW)]
    return [_line(_EQUAL, 0, len(body), number), *body]
