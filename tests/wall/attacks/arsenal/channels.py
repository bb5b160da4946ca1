"""Ways to speak to somebody outside: sockets, shared memory,
queues, and the kernel's own talkative corners.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from pathlib import Path
from typing import Any

from arsenal.kernel import CLONE_NEWNET, call, check, gain_power, libc

PATIENCE = 3


def _ask(family: int, kind: int, protocol: int, address: Any) -> bytes:
    with socket.socket(family, kind, protocol) as plug:
        plug.settimeout(PATIENCE)
        plug.connect(address)
        plug.send(b"?")
        return plug.recv(4096)


def tcp(config: dict[str, Any]) -> bytes:
    return _ask(socket.AF_INET, socket.SOCK_STREAM, 0, ("127.0.0.1", config["tcp"]))


def mptcp(config: dict[str, Any]) -> bytes:
    return _ask(socket.AF_INET, socket.SOCK_STREAM, 262, ("127.0.0.1", config["tcp"]))


def udp(config: dict[str, Any]) -> bytes:
    return _ask(socket.AF_INET, socket.SOCK_DGRAM, 0, ("127.0.0.1", config["udp"]))


def unix_path(config: dict[str, Any]) -> bytes:
    return _ask(socket.AF_UNIX, socket.SOCK_STREAM, 0, config["unix"])


def unix_abstract(config: dict[str, Any]) -> bytes:
    return _ask(socket.AF_UNIX, socket.SOCK_STREAM, 0, "\0" + config["abstract"])


def unix_datagram(config: dict[str, Any]) -> bytes:
    """One that needs no connection."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as plug:
        plug.settimeout(PATIENCE)
        plug.bind(f"\0answer-{os.getpid()}-{config['abstract']}")
        plug.sendto(b"?", "\0datagram-" + config["abstract"])
        return plug.recv(4096)


def netlink(config: dict[str, Any]) -> bytes:
    """The machine's network interfaces."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as plug:
        plug.settimeout(PATIENCE)
        plug.send(struct.pack("<IHHIIBxHiII", 32, 18, 0x301, 1, 0, 0, 0, 0, 0, 0))
        return b"got in: " + plug.recv(64)


def vsock(config: dict[str, Any]) -> bytes:
    with socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM):
        return b"got in"


def packet(config: dict[str, Any]) -> bytes:
    if os.getuid():
        gain_power(CLONE_NEWNET)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0x0300):
        return b"got in"


def algorithm(config: dict[str, Any]) -> bytes:
    with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET):
        return b"got in"


def sysv_memory(config: dict[str, Any]) -> bytes:
    place = libc.shmat(check(libc.shmget(config["sysv"], 4096, 0)), None, 0o10000)
    return ctypes.string_at(place, 256)


def sysv_queue(config: dict[str, Any]) -> bytes:
    buffer = ctypes.create_string_buffer(264)
    check(libc.msgrcv(check(libc.msgget(config["sysv"], 0)), buffer, 256, 0, 0o4000))
    return buffer.raw[8:]


def sysv_semaphore(config: dict[str, Any]) -> bytes:
    return b"got in: %d" % check(libc.semctl(check(libc.semget(config["sysv"], 1, 0)), 0, 12))


def posix_queue(config: dict[str, Any]) -> bytes:
    buffer = ctypes.create_string_buffer(8192)
    check(libc.mq_receive(check(libc.mq_open(config["queue"].encode(), os.O_RDWR)), buffer, 8192, None))
    return buffer.raw


def shared_memory_leftover(config: dict[str, Any]) -> bytes:
    found = b"".join(
        path.read_bytes()
        for path in Path("/dev/shm").iterdir()
        if path.is_file() and path.name == config["leftover"]
    )
    if not found:
        raise FileNotFoundError("nothing was left")
    return found


def bpf(config: dict[str, Any]) -> bytes:
    call("bpf", 0, struct.pack("<IIII", 2, 4, 8, 1).ljust(120, b"\0"), 120)
    return b"got in"


def perf(config: dict[str, Any]) -> bytes:
    exclude_kernel = 1 << 5 | 1 << 6
    call(
        "perf_event_open",
        struct.pack("<IIQQQQQ", 1, 112, 0, 0, 0, 0, exclude_kernel).ljust(112, b"\0"),
        0,
        -1,
        -1,
        0,
    )
    return b"got in"


def fanotify(config: dict[str, Any]) -> bytes:
    call("fanotify_init", 0x200, 0)  # the kind that an ordinary user may have
    return b"got in"


def userfaultfd(config: dict[str, Any]) -> bytes:
    call("userfaultfd", 1)
    return b"got in"


def keyring(config: dict[str, Any]) -> bytes:
    """Kernel keys outlive a stage and are shared by all processes of a user."""
    call("add_key", b"user", b"airlock-attack", b"x", 1, -4)
    return b"got in"


ATTACKS = [
    tcp,
    mptcp,
    udp,
    unix_path,
    unix_abstract,
    unix_datagram,
    netlink,
    vsock,
    packet,
    algorithm,
    sysv_memory,
    sysv_queue,
    sysv_semaphore,
    posix_queue,
    shared_memory_leftover,
    bpf,
    perf,
    fanotify,
    userfaultfd,
    keyring,
]
PRIVILEGED = [bpf]
