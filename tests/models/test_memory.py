"""Pages that a step freed are there for the next."""

from __future__ import annotations

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from airlock.models.memory import keep_pages

if sys.argv[1] == "keep" and not keep_pages():
    sys.exit(3)
def step():
    return float(np.ones(50_000_000 // 8).sum() + np.ones(40_000_000 // 8).sum())
step(), step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
found = [step() for _ in range(5)]
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, sum(found))
"""


def faults(way: str) -> tuple[int, float]:
    done = subprocess.run([sys.executable, "-c", FAULTS, way], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip("not glibc")
    assert done.returncode == 0, done.stderr
    count, found = done.stdout.split()
    return int(count), float(found)


def test_kept_pages_are_not_made_anew_and_change_no_result() -> None:
    (plain, wanted), (kept, found) = faults("plain"), faults("keep")
    assert found == wanted
    # Five times 90 MB in pages of 4 KB, or at least in huge ones.
    assert kept < plain / 5
