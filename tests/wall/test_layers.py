"""On machines that offer less: what is taken, what is refused, and with which words."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from airlock.errors import BoundaryError
from airlock.wall import layers
from airlock.wall.layers import Layer

HERE = Path(__file__).resolve().parent
OFFERED = layers.choose("advisory", zone="open")
needs_all = pytest.mark.skipif(layers.ALL != OFFERED, reason="not all layers here: airlock doctor")

# Run in a process that a filter holds back, as a container's would.
PRELUDE = """
import json, sys
sys.path[:0] = [{here!r}]
from airlock.wall import kernel, layers, seccomp
from airlock.errors import BoundaryError
kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
seccomp.install(bytes.fromhex({program!r}))
def attempt(enforcement):
    try:
        return sorted(layers.choose(enforcement, zone="open"))
    except BoundaryError as error:
        return str(error)
"""


def refusing(**errors: int) -> bytes:
    """A filter that answers the named calls with an error and lets all others through."""
    from airlock.wall import kernel, seccomp

    numbers = {**seccomp.NUMBERS[kernel.ARCHITECTURE], **kernel.NUMBERS[kernel.ARCHITECTURE]}
    code = struct.pack("<HBBI", 0x20, 0, 0, 0)
    for name, error in errors.items():
        code += struct.pack("<HBBI", 0x15, 0, 1, numbers[name]) + struct.pack(
            "<HBBI", 0x06, 0, 0, 0x00050000 | error
        )
    return code + struct.pack("<HBBI", 0x06, 0, 0, seccomp.ALLOW)


def inside(program: bytes, code: str) -> list[object]:
    """What `code` prints as JSON lines on such a machine."""
    script = PRELUDE.format(here=str(HERE.parents[1]), program=program.hex()) + code
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@needs_all
def test_a_container_gets_the_minimum_and_strict_refuses() -> None:
    auto, strict = inside(
        refusing(unshare=1, mount=1),
        "print(json.dumps(attempt('auto'))); print(json.dumps(attempt('strict')))",
    )
    assert auto == sorted(layers.MINIMUM)
    assert "'root' is missing" in str(strict)
    assert "unshare" in str(strict)
    assert "--cap-add SYS_ADMIN" in str(strict) or "sysctl" in str(strict)


@needs_all
def test_a_stage_runs_and_is_confined_in_a_container() -> None:
    code = """
from tests.support.small_workspace import cell, SECRET
with cell() as room:
    code = f"print(open({str(room.dep)!r}).read()); open({str(room.raw)!r})"
    outcome = room.run(code, layers.choose("auto", zone="open"))
    print(json.dumps([outcome.returncode, "the dep" in room.output, SECRET in room.output, outcome.recorder]))
"""
    assert inside(refusing(unshare=1, mount=1), code) == [[1, True, False, "inotify"]]


@needs_all
def test_without_pivot_root_the_namespaces_are_still_taken() -> None:
    (auto,) = inside(refusing(pivot_root=22), "print(json.dumps(attempt('auto')))")
    assert auto == sorted(layers.ALL - {Layer.ROOT})


@needs_all
def test_without_landlock_no_stage_starts_unless_advisory() -> None:
    code = "print(json.dumps(attempt('auto'))); print(json.dumps(attempt('advisory')))"
    auto, advisory = inside(refusing(landlock_create_ruleset=38), code)
    assert "'landlock' is missing" in str(auto)
    assert "Linux 6.2" in str(auto)
    assert advisory == sorted(layers.ALL - {Layer.LANDLOCK})


@needs_all
def test_without_landlock_an_advisory_stage_still_sees_only_its_root() -> None:
    code = """
from tests.support.small_workspace import cell, SECRET
with cell() as room:
    outcome = room.run(f"open({str(room.raw)!r})", layers.choose("advisory", zone="open"))
    print(json.dumps([outcome.returncode, SECRET in room.output, sorted(outcome.layers)]))
"""
    assert inside(refusing(landlock_create_ruleset=38), code) == [
        [1, False, sorted(layers.ALL - {Layer.LANDLOCK})]
    ]


@needs_all
def test_a_layer_that_fails_after_it_was_chosen_stops_the_run() -> None:
    code = """
from tests.support.small_workspace import cell
with cell() as room:
    try:
        room.run("open('staging/started', 'w')", layers.ALL)
    except BoundaryError as error:
        print(json.dumps([str(error), len(list(room.staging.iterdir()))]))
"""
    for call, error in {
        "unshare": 1,
        "pivot_root": 22,
        "landlock_restrict_self": 1,
        "seccomp": 22,
        "capset": 1,
        "mount_setattr": 1,
    }.items():
        ((words, made),) = inside(refusing(**{call: error}), code)  # type: ignore[misc]
        assert call in words
        assert made == 0


def test_every_layer_says_what_it_leaves_open() -> None:
    assert set(layers.LEFT_OPEN) == set(Layer) == layers.ALL
    assert layers.MINIMUM < layers.ALL


@needs_all
def test_all_layers_are_offered_here_and_strict_takes_them() -> None:
    assert layers.probe() == dict.fromkeys(Layer, "")
    assert layers.choose("strict", zone="open") == layers.ALL


@pytest.mark.skipif(layers.ALL == OFFERED, reason="all layers are here")
def test_strict_refuses_here() -> None:
    with pytest.raises(BoundaryError, match="missing"):
        layers.choose("strict", zone="open")


def children() -> set[str]:
    """Processes of this one; the test runner may have some of its own."""
    return {
        name for task in Path("/proc/self/task").iterdir() for name in (task / "children").read_text().split()
    }


def test_probing_leaves_no_process_and_no_descriptor() -> None:
    before, born = os.listdir("/proc/self/fd"), children()
    layers._probe.cache_clear()
    layers.probe()
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert children() == born
