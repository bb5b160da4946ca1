"""What `make schedule` keeps alive, what it forgets before it starts, and who waits for whom."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows import schedule, server
from tests.conftest import ROOT, Workspace, make_workspace

HOLD = """
import sys, time
from pathlib import Path
from flows import overrides
work = Path.cwd()
with overrides.turn(work), overrides.written(work, {"release.epsilon": 0.62}, ["data/released/release"]):
    print("in", flush=True)
    if sys.argv[1:] == ["fail"]:
        raise ValueError
    sys.stdin.read()
"""
TURN = """
from pathlib import Path
from flows import overrides
with overrides.turn(Path.cwd()):
    print("in", flush=True)
"""


def process(tmp_path: Path, seconds: float) -> server.Process:
    command = [sys.executable, "-c", f"import time; time.sleep({seconds})"]
    return server.Process(command, environment={}, log=tmp_path / "log", cwd=tmp_path)


def test_a_process_that_ends_is_started_again_later_and_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now, started = [1000.0], []
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def make() -> server.Process:
        started.append(process(tmp_path, 60))
        return started[-1]

    kept = schedule.RestartedProcess("worker open", make)
    kept.start()
    pauses = []
    for _ in range(8):
        started[-1].kill()
        begun, count = now[0], len(started)
        while len(started) == count:
            kept.watch()
            now[0] += 0.25
        pauses.append(round(now[0] - begun - 0.25))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    now[0] += schedule.LONGEST_SECONDS + 1
    started[-1].kill()
    kept.watch()
    kept.stop()
    told = capsys.readouterr().out.splitlines()
    assert told[-1].endswith("it is started again in 1 s"), "it had run for more than a minute"
    assert all(line.startswith("worker open: ended; its log is ") for line in told)


def test_turns_that_an_earlier_server_lent_out_are_forgotten(tmp_path: Path) -> None:
    (tmp_path / "concurrency_leases").mkdir()
    (tmp_path / "concurrency_leases/x.json").write_text("{}")
    server.clear_leases(tmp_path)
    assert not (tmp_path / "concurrency_leases").exists()
    server.clear_leases(tmp_path)


def test_the_profile_is_the_owners_alone(tmp_path: Path) -> None:
    environment = server.settings(tmp_path, 4200, tmp_path, {})
    server.write_profile(environment)
    assert environment["PREFECT_API_AUTH_STRING"] in (tmp_path / "profiles.toml").read_text()
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert server.settings(tmp_path, 4200, tmp_path, {}) == environment, "the password is made once"


def test_the_text_says_the_schedule_of_prefect_yaml() -> None:
    assert schedule.schedules(ROOT) == "  pipeline/nightly: cron '0 2 * * *', UTC"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    made = make_workspace(tmp_path_factory.mktemp("turns"))
    made.run("airlock", "data", "fetch", "wdbc")
    return made


def begin(workspace: Workspace, script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=workspace.root,
        env=workspace.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_two_flows_never_work_in_one_folder_whatever_the_server_says(workspace: Workspace) -> None:
    """A lease that ended early once let a second run in, which wrote params.yaml under the first."""
    before = (workspace.root / "params.yaml").read_text()
    first = begin(workspace, HOLD)
    assert first.stdout and first.stdout.readline() == "in\n"
    held = (workspace.root / "params.yaml").read_text()
    assert held != before
    second = begin(workspace, TURN)
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(timeout=4)
    first.communicate("")
    assert second.communicate(timeout=60)[0] == "in\n"
    assert (workspace.root / "params.yaml").read_text() == held, "a run that ends well leaves what it wrote"
    (workspace.root / "params.yaml").write_text(before)


@pytest.mark.parametrize("end", ["fail", "kill", "edit"])
def test_what_was_written_is_put_back_if_nothing_was_paid(workspace: Workspace, end: str) -> None:
    params = workspace.root / "params.yaml"
    before = params.read_text()
    run = begin(workspace, HOLD, end)
    assert run.stdout and run.stdout.readline() == "in\n"
    if end != "fail":
        assert "0.62" in params.read_text()
        run.kill()
    run.communicate()
    if end == "edit":
        params.write_text(before.replace("epsilon: 1.0", "epsilon: 0.9"))
    expected = before if end != "edit" else params.read_text()
    workspace.run(sys.executable, "-c", TURN)
    assert params.read_text() == expected, "an edit made by hand since then stays"
    params.write_text(before)


@pytest.mark.xdist_group("prefect")
def test_a_worker_takes_one_run_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty nights on a busy machine found it: late runs were all started, and asked the server for their turn so
    often that it answered nobody.
    """
    from flows import worker  # and with it Prefect, which only one process of pytest-xdist needs

    begun = []

    async def start(self: worker.OwnFlowsWorker, **_: object) -> None:
        begun.append(self._limit)

    monkeypatch.setattr(worker.process, "load_flow_from_flow_run", None)  # put back afterwards
    monkeypatch.setattr(worker.OwnFlowsWorker, "start", start)
    asyncio.run(worker.work("open"))
    assert begun == [1]
