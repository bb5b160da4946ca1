"""What the wall costs: until a stage's Python starts (set-up, at most 50 ms are promised), and over the whole
run.

    python bench/scale/wall.py [ROUNDS]

Prints a table and writes nothing. Rounds with and without the wall alternate, so a busy machine slows both;
the processor's time is what remains true on one (or run it with `chrt -f 1`).
"""

from __future__ import annotations

import functools
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from airlock.wall import layers, sandbox

STAGE = [sys.executable, "-c", "pass"]
CODE = Path(sandbox.__file__).resolve().parents[1]


@dataclass(frozen=True)
class Sample:
    """One run, in milliseconds: until the program started, until
    everything was over, and of the processor.
    """

    start: float
    total: float
    processor: float


def main(rounds: int) -> None:
    """Measure each wall that this machine offers."""
    offered = layers.choose("advisory", zone="open")
    print(
        f"{'wall':<8} {'set-up ms':>9} {'plain ms':>9} {'walled ms':>9} {'cost ms':>8} {'ratio':>6} "
        f"{'CPU cost ms':>12}"
    )
    with tempfile.TemporaryDirectory(prefix="airlock-bench-") as folder:
        base = Path(folder).resolve()
        (base / "canary").write_text("canary")
        for name, wanted in {"full": offered, "minimum": layers.MINIMUM}.items():
            pairs = [
                (measure(plain), measure(functools.partial(walled, base, wanted))) for _ in range(rounds)
            ]
            show(name, [pair[0] for pair in pairs], [pair[1] for pair in pairs])


def show(name: str, without: list[Sample], behind: list[Sample]) -> None:
    """One line of the table, of medians."""
    setup = median(sample.start for sample in behind)
    bare, walled = (median(sample.total for sample in samples) for samples in (without, behind))
    processor = median(
        after.processor - before.processor for before, after in zip(without, behind, strict=True)
    )
    print(
        f"{name:<8} {setup:9.1f} {bare:9.1f} {walled:9.1f} {walled - bare:8.1f} {walled / bare:6.2f} "
        f"{processor:12.1f}"
    )


def measure(action: Callable[[], float]) -> Sample:
    """Run once; `action` tells when the program started."""
    clock, processor = time.perf_counter(), spent()
    started = action()
    return Sample(
        *(1e3 * span for span in (started - clock, time.perf_counter() - clock, spent() - processor))
    )


def spent() -> float:
    """Processor time so far, ours and our children's."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in usage)


def plain() -> float:
    """The stage without a wall."""
    started = time.perf_counter()
    subprocess.run(STAGE, check=True)
    return started


def walled(base: Path, wanted: frozenset[layers.Layer]) -> float:
    """The same behind it: probe, grants, plan, launcher, layers, canary, recorder."""
    layers._probe.cache_clear()
    layers.probe()
    grants = replace(sandbox.python_grants("open", CODE), canary=base / "canary")
    started: list[float] = []
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
            on_start=lambda process: started.append(time.perf_counter()),
        )
    assert outcome.returncode == 0
    return started[0]


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
