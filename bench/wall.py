"""What the wall costs: the time from `run` to the first line of a stage's code, against the same program without it.

    python bench/wall.py [ROUNDS]

Prints a table and writes nothing. Rounds with and without the wall alternate, so a busy machine slows both; the CPU time is what
remains true on one.
"""

from __future__ import annotations

import functools
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from stages.boundary import layers, sandbox

STAGE = [sys.executable, "-c", "pass"]
CODE = Path(sandbox.__file__).resolve().parents[1]


def main(rounds: int) -> None:
    """Measure each wall that this machine offers."""
    offered = layers.choose("advisory", zone="open")
    started = time.perf_counter()
    layers._probe.cache_clear()
    layers.probe()
    print(f"probing the layers, once per `airlock run`: {(time.perf_counter() - started) * 1e3:.1f} ms")
    print(f"{'wall':<10} {'plain ms':>9} {'walled ms':>9} {'cost ms':>8} {'ratio':>6} {'CPU cost ms':>12}")
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
        base = Path(folder).resolve()
        (base / "canary").write_text("canary")
        for name, wanted in {"full": offered, "minimum": layers.MINIMUM}.items():
            compare(name, functools.partial(walled, base, wanted), rounds)


def compare(name: str, wall: Callable[[], None], rounds: int) -> None:
    """One line of the table."""
    pairs = [(measure(plain), measure(wall)) for _ in range(rounds)]
    bare, behind = (statistics.median(pair[side][0] for pair in pairs) * 1e3 for side in (0, 1))
    processor = statistics.median(pair[1][1] - pair[0][1] for pair in pairs) * 1e3
    print(f"{name:<10} {bare:9.1f} {behind:9.1f} {behind - bare:8.1f} {behind / bare:6.2f} {processor:12.1f}")


def measure(action: Callable[[], None]) -> tuple[float, float]:
    """Seconds on the clock, and of the processor (ours and our children's)."""
    clock, processor = time.perf_counter(), spent()
    action()
    return time.perf_counter() - clock, spent() - processor


def spent() -> float:
    """Processor time so far."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in usage)


def plain() -> None:
    """The stage without a wall."""
    subprocess.run(STAGE, check=True)


def walled(base: Path, wanted: frozenset[layers.Layer]) -> None:
    """The same behind it: grants, plan, launcher, layers, canary, recorder."""
    grants = replace(sandbox.python_grants("open", CODE), canary=base / "canary")
    with tempfile.TemporaryDirectory(prefix="airlock-bench-", dir="/dev/shm") as scratch:
        outcome = sandbox.run(
            STAGE,
            grants,
            wanted,
            pass_fds={},
            stdout=None,
            stderr=None,
            cwd=base,
            scratch=Path(scratch),
            watch=[base / "canary"],
        )
    assert outcome.returncode == 0


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
