"""A clock that was set back by a year, for every command: nothing rests on it but what people read."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Workspace
from tests.run.test_stage import reserved

# Loaded before the C library, it takes a year off every answer about the time of day.
SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
#define BACK (400 * 86400L)
int clock_gettime(clockid_t id, struct timespec *t) {
  int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
  int done = real(id, t);
  if (!done && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) t->tv_sec -= BACK;
  return done;
}
int gettimeofday(struct timeval *restrict t, void *restrict zone) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  t->tv_sec = now.tv_sec;
  t->tv_usec = now.tv_nsec / 1000;
  return 0;
}
time_t time(time_t *t) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (t) *t = now.tv_sec;
  return now.tv_sec;
}
"""


@pytest.fixture
def a_year_ago(tmp_path: Path) -> dict[str, str]:
    """The environment of a command whose clock was set back."""
    source, library = tmp_path / "clock.c", tmp_path / "clock.so"
    source.write_text(SHIM)
    if not shutil.which("cc"):
        pytest.skip("no C compiler on this machine")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}


def told(workspace: Workspace) -> list[str]:
    """When each receipt of a release says that it was made, in the order of the ledger."""
    files = (workspace.root / "receipts/release").glob("*.json")
    bodies = [json.loads(file.read_text())["body"] for file in files]
    return [body["when"] for body in sorted(bodies, key=lambda body: body["ledger"]["sequence"])]


@pytest.mark.stress
def test_a_clock_that_was_set_back_spends_nothing_twice(
    finished: Workspace, tmp_path: Path, a_year_ago: dict[str, str]
) -> None:
    place = finished.home / "airlock/airlock-default"
    before = shutil.copytree(place, tmp_path / "before")
    entries = reserved(finished)
    finished.set("release.epsilon", 0.5)
    finished.run("dvc", "repro", environment=a_year_ago)
    assert told(finished)[-1] < told(finished)[0], "the control: its clock was set back"
    assert reserved(finished) > entries
    for clock in ({}, a_year_ago):
        assert finished.run("airlock", "audit", environment=clock).returncode == 0
        said = finished.run("airlock", "budget", "verify", environment=clock).stdout
        assert said == "every entry is in its place\n"
    # The same release again, by the right clock and the wrong one: a replay, and no charge.
    entries = reserved(finished)
    for clock in ({}, a_year_ago):
        finished.run("airlock", "run", "release", environment=clock)
        assert reserved(finished) == entries
    # A ledger from before is found by its heads, whatever time it is.
    shutil.copy(before / "scratch.db", place / "scratch.db")
    finished.set("release.epsilon", 0.25)
    for clock in ({}, a_year_ago):
        done = finished.run("airlock", "run", "relevance", environment=clock, check=False)
        assert done.returncode == 1 and "nothing is spent" in done.stderr, done.stderr
