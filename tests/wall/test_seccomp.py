"""The filter, run by a small interpreter of classic BPF, and its tables against the kernel's own headers, for
both architectures.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest

from airlock.wall import kernel, seccomp

ARCHITECTURES = sorted(seccomp.NUMBERS)
EPERM, ENOSYS, EOPNOTSUPP = 0x00050001, 0x00050026, 0x0005005F
HEADERS = {
    "x86_64": [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")],
    "aarch64": [Path("/usr/include/asm-generic/unistd.h")],
}
# What Python, torch and pyarrow live on.
NEEDED = {
    "x86_64": {
        "read": 0,
        "mmap": 9,
        "clone": 56,
        "fork": 57,
        "execve": 59,
        "futex": 202,
        "openat": 257,
        "openat2": 437,
    },
    "aarch64": {
        "openat": 56,
        "read": 63,
        "futex": 98,
        "clone": 220,
        "execve": 221,
        "mmap": 222,
        "openat2": 437,
    },
}
NEW_USER, NEW_MOUNT, THREAD = 0x10000000, 0x00020000, 0x3D0F00


def verdict(program: bytes, architecture: str, number: int, *arguments: int) -> int:
    """What the filter answers to one call."""
    given = [*arguments, *([0] * (6 - len(arguments)))]
    data = struct.pack("<iIQ6Q", number, seccomp.AUDIT_ARCHITECTURE[architecture], 0, *given)
    lines = list(struct.iter_unpack("<HBBI", program))
    accumulator, position = 0, 0
    while True:
        code, then, otherwise, value = lines[position]
        position += 1
        if code == 0x06:
            return int(value)
        if code == 0x20:
            accumulator = struct.unpack_from("<I", data, value)[0]
        else:
            holds = {0x15: accumulator == value, 0x25: accumulator > value, 0x45: bool(accumulator & value)}[
                code
            ]
            position += then if holds else otherwise


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("new_root", [True, False])
def test_refuses_all_that_is_listed(architecture: str, new_root: bool) -> None:
    program = seccomp.build(architecture, new_root=new_root)
    by_argument = {"socket", "socketpair", "clone", "clone3", "ioctl"}
    for name, number in seccomp.NUMBERS[architecture].items():
        if name not in by_argument:
            refusal = EOPNOTSUPP if name in seccomp.ATTRIBUTES else EPERM
            expected = seccomp.ALLOW if new_root and name in seccomp.OUTSIDE_A_ROOT else refusal
            assert verdict(program, architecture, number) == expected, name


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_lets_through_what_stages_need(architecture: str) -> None:
    program = seccomp.build(architecture, new_root=False)
    assert {verdict(program, architecture, number) for number in NEEDED[architecture].values()} == {
        seccomp.ALLOW
    }


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_threads_and_children_but_no_namespaces(architecture: str) -> None:
    program, clone = seccomp.build(architecture, new_root=True), seccomp.NUMBERS[architecture]["clone"]
    assert verdict(program, architecture, clone, THREAD) == seccomp.ALLOW
    assert verdict(program, architecture, clone, 17) == seccomp.ALLOW
    for flag in (NEW_USER, NEW_MOUNT, 0x02000000, 0x04000000, 0x08000000, 0x20000000, 0x40000000):
        assert verdict(program, architecture, clone, flag | 17) == EPERM
    assert verdict(program, architecture, seccomp.NUMBERS[architecture]["clone3"]) == ENOSYS


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_sockets_only_where_they_lead_nowhere(architecture: str) -> None:
    numbers = seccomp.NUMBERS[architecture]
    inside, outside = (seccomp.build(architecture, new_root=answer) for answer in (True, False))
    unix, others = 1, [0, 2, 10, 16, 17, 38, 40]
    assert verdict(inside, architecture, numbers["socket"], unix) == seccomp.ALLOW
    assert verdict(outside, architecture, numbers["socket"], unix) == EPERM
    for program in (inside, outside):
        assert verdict(program, architecture, numbers["socketpair"], unix) == seccomp.ALLOW
        for family in others:
            assert verdict(program, architecture, numbers["socket"], family) == EPERM
            assert verdict(program, architecture, numbers["socketpair"], family) == EPERM
    # Only 32 bits of a family count for the kernel; upper bits must not smuggle one through.
    assert verdict(inside, architecture, numbers["socket"], 1 << 32 | 2) == EPERM


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_typing_into_terminals(architecture: str) -> None:
    program, ioctl = seccomp.build(architecture, new_root=True), seccomp.NUMBERS[architecture]["ioctl"]
    assert verdict(program, architecture, ioctl, 1, 0x5412) == EPERM
    assert verdict(program, architecture, ioctl, 1, 0x541C) == EPERM
    assert verdict(program, architecture, ioctl, 1, 0x5401) == seccomp.ALLOW


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_another_table_of_calls_kills(architecture: str) -> None:
    program = seccomp.build(architecture, new_root=True)
    other = next(name for name in ARCHITECTURES if name != architecture)
    assert verdict(program, other, 0) == seccomp.KILL
    if architecture == "x86_64":
        assert verdict(program, architecture, 0x40000000) == seccomp.KILL
        assert verdict(program, architecture, 0x40000000 | 520) == seccomp.KILL


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_calls_younger_than_the_filter_do_not_exist(architecture: str) -> None:
    program = seccomp.build(architecture, new_root=True)
    assert {verdict(program, architecture, number) for number in (470, 500, 0x3FFFFFFF)} == {ENOSYS}


def test_an_unknown_architecture_is_an_error() -> None:
    with pytest.raises(OSError, match="riscv64"):
        seccomp.build("riscv64", new_root=True)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_numbers_are_those_of_the_kernel(architecture: str) -> None:
    header = next((path for path in HEADERS[architecture] if path.exists()), None)
    if header is None:
        pytest.skip("the kernel's headers are not installed")
    defined = {
        name: int(number)
        for name, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    }
    youngest = max(defined.values())
    ours = {**seccomp.NUMBERS[architecture], **kernel.NUMBERS[architecture]}
    for name, number in ours.items():
        assert defined.get(name, number if number > youngest else None) == number, name
    assert sum(name in defined for name in ours) > 70
