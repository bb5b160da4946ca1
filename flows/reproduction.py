"""`dvc` as a child that dies with its flow; few of its words may be told, the rest are the owner's."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from graphlib import TopologicalSorter
from pathlib import Path

from airlock.errors import StageFailed
from airlock.evidence import checker, zones
from airlock.evidence.revisions import Workspace
from airlock.owner.home import project
from airlock.run import dvc, failures, leftovers
from airlock.run.die_with_parent import leashed
from airlock.workspaces import listings
from airlock.workspaces.handover import config
from airlock.workspaces.parcel import Store

Tell = Callable[[str], None]

RUNNING_LINE = re.compile(r"Running stage '([^']+)'")
OWN_WORDS = re.compile(r"^airlock: (.+)$")


def stages_of(workspace: Path, *rooms: str) -> list[str]:
    """The stages of some zones, each after those that it depends on; owner/ is the owner's to run."""
    graph = zones.parse((workspace / "dvc.yaml").read_text(), (workspace / "params.yaml").read_text())
    before = {
        stage.name: {maker.name for dep in stage.deps for maker in graph.makers(dep)} for stage in graph
    }
    names = TopologicalSorter(before).static_order()
    return [name for name in names if graph.stage(name).zone in rooms and not graph.stage(name).frozen]


def reproduce(workspace: Path, stages: Sequence[str], tell: Tell, *, confidential: bool) -> None:
    """Bring `stages` up to date, in the order given, and nothing else: an open run never starts a release.

    Args:
        workspace: the DVC repository.
        stages: names from dvc.yaml, see `stages_of`.
        tell: takes lines that may go to the Prefect server.
        confidential: whether records are near. Then only the names of stages, and of a failure the class of
            the error, are told: which record broke a rule is a fact about records. The owner's log has it.

    Raises:
        StageFailed: with the name of the stage, and its one line where no record is near.
    """
    _run(["dvc", "repro", "--single-item", *stages], workspace, tell, confidential=confidential)


def exchange(workspace: Path, direction: str, tell: Tell) -> None:
    """`dvc push` or `dvc pull` of what was released; the remote of sealed data is never named here."""
    stages = stages_of(workspace, "release", "open")
    if direction == "pull":
        lock = checker.lock_of(Workspace(workspace))
        outs = [out for stage in stages for out in lock.get(stage, {}).get("outs", [])]
        dvc.check(workspace, direction)
        store = Store("the remote 'released'", config(workspace))
        listings.bring(
            store, listings.cache_of(workspace), [(str(out["path"]), out.get("md5")) for out in outs]
        )
    _run(
        ["dvc", direction, "--remote", "released", *stages],
        workspace,
        tell,
        confidential=False,
    )


def _run(command: Sequence[str], workspace: Path, tell: Tell, *, confidential: bool) -> None:
    dvc.check(
        workspace, *command[1:]
    )  # DVC obeys more than its pipelines: nothing is started that is not followed
    leftovers.sweep_workspace(workspace)  # a DVC that was killed may have left what stops the next one
    log = project(workspace).log
    log.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(log / "flow.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    stage, words = "", ""
    with os.fdopen(descriptor, "a") as record, _child(command, workspace) as child:
        for line in child.stdout or ():
            record.write(line)
            if found := RUNNING_LINE.search(line):
                stage, words = found[1], ""
                tell(f"stage {stage}")
            elif found := OWN_WORDS.match(line):
                words = found[1]
            elif not confidential and line.strip():
                tell(line.rstrip())
    if child.returncode != 0:
        raise _failure(command, stage, _class(workspace, stage) if confidential else words)


@contextmanager
def _child(command: Sequence[str], workspace: Path) -> Iterator[subprocess.Popen[str]]:
    """A child in a process group of its own, on a leash; all of it is ended if the block is left early."""
    given = dvc.environment(workspace)
    child = subprocess.Popen(
        leashed(command),
        cwd=workspace,
        env={name: value for name, value in given.items() if not name.endswith("API_AUTH_STRING")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        yield child
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        raise
    finally:
        child.wait()


def _class(workspace: Path, stage: str) -> str:
    """The class of the error that a stage's last run ended with, from a short list."""
    return next((one.error for one in failures.of_workspace(workspace) if one.stage == stage), "")


def _failure(command: Sequence[str], stage: str, words: str) -> StageFailed:
    name = f"stage '{stage}'" if stage else f"`{' '.join(command[:2])}`"
    more = f": {words}" if stage and words else ""
    return StageFailed(f"{name} failed{more}; its output is in the owner's log, log/flow.out in AIRLOCK_HOME")
