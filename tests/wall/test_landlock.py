"""Landlock's rights: names, versions, and what a rule on a file may hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airlock.wall import landlock

HEADER = Path("/usr/include/linux/landlock.h")


@pytest.mark.skipif(not HEADER.exists(), reason="the kernel's headers are not installed")
def test_rights_are_those_of_the_kernel() -> None:
    defined = dict(re.findall(r"LANDLOCK_ACCESS_FS_(\w+)\s+\(1ULL << (\d+)\)", HEADER.read_text()))
    assert len(defined) >= 14
    assert {name: 1 << int(bit) for name, bit in defined.items()} == {
        name: getattr(landlock, name) for name in defined
    }


def test_every_right_of_a_version_is_handled() -> None:
    assert landlock.handled(3) & landlock.TRUNCATE
    assert not landlock.handled(4) & landlock.IOCTL_DEV
    assert landlock.handled(5) & landlock.IOCTL_DEV


def test_outs_can_be_files_and_folders_only() -> None:
    for right in (
        landlock.MAKE_SYM,
        landlock.MAKE_SOCK,
        landlock.MAKE_FIFO,
        landlock.MAKE_CHAR,
        landlock.MAKE_BLOCK,
        landlock.IOCTL_DEV,
    ):
        assert not landlock.WRITE & right
    assert not landlock.SCRATCH & (
        landlock.MAKE_CHAR | landlock.MAKE_BLOCK | landlock.IOCTL_DEV | landlock.EXECUTE
    )


def test_reading_never_includes_changing() -> None:
    changing = landlock.WRITE & ~landlock.READ
    assert not (landlock.READ | landlock.RUN) & changing


def test_a_rule_on_a_file_holds_only_what_files_have() -> None:
    assert landlock.on_file(landlock.RUN) == landlock.READ_FILE | landlock.EXECUTE
    assert landlock.on_file(landlock.WRITE) == landlock.READ_FILE | landlock.WRITE_FILE | landlock.TRUNCATE
