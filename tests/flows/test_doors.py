"""Who may speak to the schedule's servers: the owner. Each attack is tried on one started the old way too."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from flows import pages, server
from flows.limits import JOB_TEMPLATE
from tests.conftest import Workspace
from tests.support import second_account
from tests.support.browser import MISSING, Browser
from tests.support.prefect_server import DATABASE, FAST, Station, wait_for

pytestmark = pytest.mark.xdist_group("prefect")

# What anyone can ask for who reaches the API: a run with a command of one's own.
ATTACK = """
import json, sys, time, urllib.error, urllib.request
api, command = sys.argv[1:]
def ask(path, body):
    kind = {"Content-Type": "application/json"}
    request = urllib.request.Request(api + path, json.dumps(body).encode(), kind)
    for _ in range(40):
        try:
            return json.load(urllib.request.urlopen(request, timeout=300))
        except urllib.error.HTTPError as error:
            if error.code != 503:
                raise
            time.sleep(0.5)  # its database is busy
try:
    flow = ask("/flows/", {"name": "evil"})["id"]
    made = ask("/deployments/", {"name": "evil", "flow_id": flow, "work_pool_name": "sensitive"})["id"]
    ask(f"/deployments/{made}/create_flow_run", {"job_variables": {"command": command}})
    print("asked")
except urllib.error.HTTPError as error:
    print(error.code)
"""
SCRIPT = """
async function ask(path, body) {
  const given = {method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify(body)};
  let answer = await fetch(API + path, given);
  for (let left = 40; answer.status == 503 && left; left--) {
    await new Promise(done => setTimeout(done, 500));  // its database is busy
    answer = await fetch(API + path, given);
  }
  return (await answer.json()).id;
}
(async () => {
  try {
    const flow = await ask('/flows/', {name: 'page'});
    const made = await ask('/deployments/', {name: 'page', flow_id: flow, work_pool_name: 'sensitive'});
    await ask(`/deployments/${made}/create_flow_run`, {job_variables: {command: COMMAND}});
    document.title = 'asked';
  } catch (error) { document.title = 'refused'; }
})();
"""


def plain_worker(settings: dict[str, str], folder: Path, log: Path) -> server.Process:
    """Prefect's own, for controls: it runs what the server says."""
    command = ["prefect", "worker", "start", "--pool", "sensitive", "--type", "process"]
    return server.Process(command, environment=settings, log=log, cwd=folder)


class Unlocked:
    """The control: a server without password, open to every page, and a pool as Prefect makes it.

    It begins with a database whose tables were made before: to make them takes longer than to start.
    """

    def __init__(self, folder: Path, environment: dict[str, str], database: Path) -> None:
        settings = server.settings(folder / "prefect", server.free_port(), folder, environment) | FAST
        for name in list(settings):
            if "AUTH_STRING" in name or "CORS" in name:
                del settings[name]
        self.api = settings["PREFECT_API_URL"]
        self.settings = settings
        shutil.copy(database, folder / "prefect" / DATABASE)
        log = folder / "log"
        self.processes = [server.start(settings, cwd=folder, log=log)]
        self.processes.append(plain_worker(settings, folder, log))
        wait_for(self._has_pool, "the worker makes its pool", pause=0.5)

    def _has_pool(self) -> bool:
        request = urllib.request.Request(f"{self.api}/work_pools/filter", b"{}", method="POST")
        request.add_header("Content-Type", "application/json")
        return bool(json.load(urllib.request.urlopen(request, timeout=60)))

    def stop(self) -> None:
        for process in self.processes:
            process.kill()


@pytest.fixture(scope="module")
def unlocked(
    station: Station, plant: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Unlocked]:
    made = Unlocked(tmp_path_factory.mktemp("unlocked"), plant.environment, station.empty)
    yield made
    made.stop()


def answer(
    station: Station, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any, str]:
    """Status, headers and text of an answer, whatever it is."""
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | {
        name.replace("_", "-"): one for name, one in headers.items()
    }
    address = station.environment["PREFECT_API_URL"] + path
    request = urllib.request.Request(address, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as found:
            return found.status, found.headers, found.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def password(station: Station) -> str:
    return "Basic " + base64.b64encode(station.environment["PREFECT_API_AUTH_STRING"].encode()).decode()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *[
            ("GET", path)
            for path in ("/admin/version", "/admin/settings", "/work_pools/sensitive", "/csrf-token")
        ],
        *[
            ("POST", path)
            for path in ("/flow_runs/filter", "/flows/", "/deployments/", "/logs/filter", "/ui/flows")
        ],
        ("PATCH", "/work_pools/sensitive"),
        ("GET", "/health/../admin/settings"),
    ],
)
def test_a_stranger_gets_no_answer(station: Station, method: str, path: str) -> None:
    body = None if method == "GET" else {}
    assert answer(station, method, path, body)[0] == 401
    assert answer(station, method, path, body, Authorization="Basic " + "YTpi")[0] == 401
    assert answer(station, method, path, body, Authorization=password(station))[0] != 401, "the control"


def test_a_stranger_cannot_send_events(station: Station) -> None:
    from websockets.exceptions import WebSocketException
    from websockets.sync.client import connect

    address = station.environment["PREFECT_API_URL"].replace("http", "ws", 1) + "/events/in"
    with pytest.raises(WebSocketException):
        connect(address).recv(timeout=20)


def test_the_password_is_the_owners_alone(station: Station) -> None:
    assert (station.home / "password").stat().st_mode & 0o777 == 0o600
    assert len(station.environment["PREFECT_API_AUTH_STRING"]) > 40
    for process in (station.server, *station.workers):
        assert (
            station.environment["PREFECT_API_AUTH_STRING"]
            not in Path(f"/proc/{process.child.pid}/cmdline").read_text()
        ), "anyone can read the arguments of a process"


@pytest.mark.parametrize("origin", ["http://127.0.0.1:1", "null", "http://example.org", "file://"])
def test_no_page_of_another_origin_is_let_in(station: Station, unlocked: Unlocked, origin: str) -> None:
    for method, path in (("GET", "/admin/version"), ("OPTIONS", "/flows/")):
        given = {
            "Origin": origin,
            "Access_Control_Request_Method": "POST",
            "Authorization": password(station),
        }
        assert "access-control-allow-origin" not in answer(station, method, path, **given)[1]
    request = urllib.request.Request(f"{unlocked.api}/admin/version", headers={"Origin": origin})
    with urllib.request.urlopen(request, timeout=60) as control:
        assert control.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    "variables",
    [
        {"command": "true"},
        {"env": {"LD_PRELOAD": "/x.so"}},
        {"env.PATH": "/x"},
        {"working_dir": "/"},
        {"x": 1},
    ],
)
def test_a_run_cannot_choose_its_command(station: Station, variables: dict[str, Any]) -> None:
    """Not even with the password."""
    key = {"Authorization": password(station)}
    deployment = station.deployment("pipeline/on-demand")
    path = f"/deployments/{deployment['id']}"
    asked = answer(station, "POST", f"{path}/create_flow_run", {"job_variables": variables}, **key)
    assert asked[0] == 422, asked[2]
    assert station.call("GET", "/work_pools/sensitive")["base_job_template"] == JOB_TEMPLATE


FILLED = """
import asyncio, json, sys
from prefect.workers.process import ProcessJobConfiguration, ProcessWorker
from flows.limits import JOB_TEMPLATE
given = {"command": "true", "env": {"A": "1"}, "env.B": "2", "working_dir": "/", "name": "x"}
async def fill(template):
    made = await ProcessJobConfiguration.from_template_and_values(template, dict(given))
    return [made.command, made.env, str(made.working_dir)]
async def main():
    control = ProcessWorker.get_default_base_job_template()
    print(json.dumps([await fill(JOB_TEMPLATE), await fill(control)]))
asyncio.run(main())
"""


def test_a_command_that_the_server_stored_all_the_same_is_ignored(station: Station) -> None:
    """The worker fills in the template: what has no place in it is dropped."""
    command = [sys.executable, "-c", FILLED]
    told = subprocess.run(command, cwd=station.root, env=station.environment, capture_output=True, check=True)
    ours, control = json.loads(told.stdout)
    assert ours == [None, {}, "None"]
    assert control == ["true", {"A": "1", "B": "2"}, "/"]


@pytest.mark.skipif(bool(second_account.MISSING), reason=second_account.MISSING)
def test_another_user_of_the_machine_cannot_run_a_command(
    station: Station, unlocked: Unlocked, tmp_path: Path
) -> None:
    def attack(api: str, mark: Path) -> str:
        return second_account.run([sys.executable, "-c", ATTACK, api, f"touch {mark}"])

    assert attack(station.environment["PREFECT_API_URL"], tmp_path / "ours") == "401"
    assert attack(unlocked.api, tmp_path / "control") == "asked"
    wait_for((tmp_path / "control").exists, "the command of the control runs")
    assert (tmp_path / "control").stat().st_uid == os.geteuid(), "as the owner of the worker"
    assert not (tmp_path / "ours").exists()


@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
def test_script_in_the_report_cannot_run_a_command(
    station: Station, unlocked: Unlocked, tmp_path: Path
) -> None:
    """Served by the schedule it does not run at all; from a file it runs, and is not let in."""
    seen = {}
    with ExitStack() as stack:
        browser = Browser(tmp_path / "profile")
        stack.callback(browser.close)
        for name, api in (("ours", station.environment["PREFECT_API_URL"]), ("control", unlocked.api)):
            page = tmp_path / name / "data/report/report.html"
            page.parent.mkdir(parents=True)
            facts = f"const API = {json.dumps(api)}, COMMAND = {json.dumps(f'touch {tmp_path}/{name}.mark')};"
            page.write_text(f"<title>still</title><p>page</p><script>{facts}{SCRIPT}</script>")
            for way, address in (("file", page.as_uri()), ("served", pages.serve(tmp_path / name, stack))):
                browser.visit(address)
                if way == "file":
                    wait_for(lambda: browser.run("return document.title") != "still", "the script has run")
                seen[name, way] = browser.run("return document.title")
        assert "page" in browser.text(), "the page itself is shown"
    assert seen == {
        ("ours", "file"): "refused",
        ("ours", "served"): "still",
        ("control", "file"): "asked",
        ("control", "served"): "still",
    }
    wait_for((tmp_path / "control.mark").exists, "the command of the control runs")
    assert not (tmp_path / "ours.mark").exists()


def test_only_the_page_is_served_and_never_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/report.html").write_text("key")
    work = tmp_path / "work"
    (work / "data").mkdir(parents=True)
    with ExitStack() as stack:
        address = pages.serve(work, stack)

        def status(path: str = "") -> int:
            try:
                with urllib.request.urlopen(address + path, timeout=20) as found:
                    assert "sandbox; default-src 'none'" in found.headers["Content-Security-Policy"]
                    return int(found.status)
            except urllib.error.HTTPError as error:
                return error.code

        assert status() == 404
        (work / "data/report").symlink_to(tmp_path / "secret")
        assert status() == 404, "a folder that is a link"
        (work / "data/report").unlink()
        (work / "data/report").mkdir()
        (work / "data/report/report.html").symlink_to(tmp_path / "secret/report.html")
        assert status() == 404, "a page that is a link"
        (work / "data/report/report.html").unlink()
        (work / "data/report/report.html").write_text("page")
        (work / "data/report/summary.json").write_text("{}")
        assert status() == 200
        assert status("/../summary.json") == 404


def test_a_server_without_a_password_is_not_set_up(unlocked: Unlocked, plant: Workspace) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "flows.setup"],
        cwd=plant.root,
        env=unlocked.settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "asks for no password: set PREFECT_SERVER_API_AUTH_STRING for it" in done.stderr


def bring_code(api: str, flow: str, trace: Path, authorization: str = "") -> str:
    """A deployment whose code is pulled by a step that runs a program, and a run of it."""

    def ask(path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json"} | (
            {"Authorization": authorization} if authorization else {}
        )
        request = urllib.request.Request(api + path, json.dumps(body).encode(), headers)
        return wait_for(lambda: _asked(request), "the server is busy")

    step = {"prefect.deployments.steps.run_shell_script": {"script": f"touch {trace}"}}
    deployment = {
        "name": "brought",
        "flow_id": ask("/flows/", {"name": flow})["id"],
        "work_pool_name": "sensitive",
        "pull_steps": [step],
        "entrypoint": "flows/pipeline.py:pipeline",
    }
    identity = ask("/deployments/", deployment)["id"]
    wrong = {"parameters": {"overrides": {"nosuch": 1}}}
    return str(ask(f"/deployments/{identity}/create_flow_run", wrong)["id"])


def _asked(request: urllib.request.Request) -> Any:
    try:
        return json.load(urllib.request.urlopen(request, timeout=60))
    except urllib.error.HTTPError as error:
        if error.code != 503:
            raise
        return None


@pytest.mark.parametrize("flow", ["pipeline", "evil"])
def test_whoever_has_the_password_cannot_bring_code(
    station: Station, unlocked: Unlocked, tmp_path: Path, flow: str
) -> None:
    """A step that pulls code runs a program; Prefect's own worker does what it says."""
    ours, theirs = tmp_path / "ours", tmp_path / "control"
    run = bring_code(station.environment["PREFECT_API_URL"], flow, ours, password(station))
    bring_code(unlocked.api, flow, theirs)
    wait_for(theirs.exists, "the control: Prefect's own worker runs the step")
    state = station.end(run)
    assert not ours.exists(), state
    if flow == "pipeline":
        assert state["type"] == "FAILED" and "nosuch" in state["message"], "the flow of this clone was run"
    else:
        assert state["type"] == "CRASHED", "and of no other name"


def test_what_a_run_is_started_with_is_decided_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from flows.worker import ENGINE, own_configuration

    monkeypatch.setenv("AIRLOCK_WORKSPACE", str(tmp_path))
    made = own_configuration("sensitive", "pipeline", "1")
    assert made.command == ENGINE and made.working_dir == tmp_path
    assert made.env["PREFECT__FLOW_ENTRYPOINT"] == f"{tmp_path}/flows/pipeline.py:pipeline"
    for pool, flow in (("sensitive", "training"), ("open", "pipeline"), ("sensitive", "../x"), ("x", "y")):
        with pytest.raises(ValueError, match="only"):
            own_configuration(pool, flow, "1")


SETTINGS = {
    ".env": "PREFECT_LOGGING_LEVEL=CRITICAL\n",
    "prefect.toml": "[logging]\nlevel = 'CRITICAL'\n",
    "pyproject.toml": "[tool.prefect.logging]\nlevel = 'CRITICAL'\n",
}
OBEYED = """
import os, sys
from prefect.settings import Settings
for folder in sys.argv[1:]:
    os.chdir(folder)
    print(Settings().logging.level)
"""


def test_settings_of_prefect_do_not_come_with_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prefect looks for them wherever it is started, and a logging setting names classes to load."""
    from flows.server import foreign_settings
    from flows.worker import own_configuration

    folders = {name: tmp_path / name.replace(".", "") for name in SETTINGS}
    for name, folder in folders.items():
        folder.mkdir()
        monkeypatch.setenv("AIRLOCK_WORKSPACE", str(folder))
        (folder / "pyproject.toml").write_text("[tool.ruff]\n")
        assert foreign_settings(folder) == "", "the control"
        (folder / name).write_text(SETTINGS[name])
        with pytest.raises(ValueError, match="remove it"):
            own_configuration("sensitive", "pipeline", "1")
    kept = {one: value for one, value in os.environ.items() if not one.startswith("PREFECT_")}
    command = [sys.executable, "-P", "-c", OBEYED, tmp_path, *folders.values()]
    told = subprocess.run(command, cwd=tmp_path, env=kept, capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["INFO", "CRITICAL", "CRITICAL", "CRITICAL"], "the control: it obeys them"
