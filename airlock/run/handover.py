"""Run one stage's code inside the sandbox: hand over the room, listen to its events, take its word on how it
ended.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airlock.errors import AirlockError, InputError, StageFailed
from airlock.inside import connection
from airlock.inside.digests import BYTECODE_FOLDER
from airlock.owner.home import Project, append_log, owner_log
from airlock.params import Params
from airlock.run.code import TOOL, Code
from airlock.run.limits import Limits
from airlock.run.stage_output import event as as_event
from airlock.run.stage_output import lines, pass_on
from airlock.wall import sandbox
from airlock.wall.grants import Held
from airlock.wall.layers import Layer

SHARED_MEMORY = Path("/dev/shm")
_WRONG_QUESTIONS = frozenset(
    {"InputError", "KeysError", "ParamsError", "RecordError", "SchemaError", "SealError"}
)
Listener = Callable[[Mapping[str, Any]], None]


@dataclass(frozen=True)
class Visit:
    """Everything that one confined run is given. `paths` are as the stage sees them; with `insist` it is
    refused rather than run as root.
    """

    stage: str
    zone: str
    module: str
    code: Code
    params: Params
    paths: Mapping[str, Path]
    reads: tuple[Held, ...]
    writes: tuple[Held, ...]
    scratch: Path
    limits: Limits
    watch: tuple[Path, ...] = ()
    guarded: tuple[Path, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    connection: connection.Exchange | None = None
    function: str = "main"
    insist: bool = False

    def request(self) -> bytes:
        """What goes through the pipe: the only way in for keys, and never written down."""
        return json.dumps(
            {
                "stage": self.stage,
                "module": self.module,
                "function": self.function,
                # What params.yaml says and no more: code of another version, from a bundle, has its own
                # defaults.
                "params": self.params.model_dump(mode="json", exclude_unset=True),
                "facts": self.facts,
                "keys": {name: base64.b64encode(key).decode() for name, key in self.keys.items()},
                "paths": {name: str(path) for name, path in self.paths.items()},
                "connected": self.connection is not None,
            }
        ).encode()


@dataclass
class OwnerLog:
    """The owner's log of one stage. A disk that is full must not end the thread that listens: the stage would die of a
    pipe that nobody reads, and nobody would know why.
    """

    project: Project
    stage: str
    failure: StageFailed | None = None

    def event(self, event: Mapping[str, Any]) -> None:
        """What the stage told."""
        with self._noted():
            owner_log(self.project, self.stage, dict(event))

    def words(self, data: bytes) -> None:
        """What the stage printed."""
        with self._noted():
            append_log(self.project, f"{self.stage}.out", data)

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = StageFailed(
                f"{self.stage}: the owner's log in {self.project.log} cannot be written "
                f"({(error.strerror or 'error').lower()}): make room on its disk, then run it again"
            )


def memory_folder() -> Path:
    """Where nothing reaches a disk: tmpfs, where there is one."""
    return SHARED_MEMORY if SHARED_MEMORY.is_dir() else Path(tempfile.gettempdir())


def confine(
    visit: Visit,
    *,
    project: Project,
    workspace: Path,
    layers: frozenset[Layer],
    canary: Path,
    listen: Listener,
) -> sandbox.Outcome:
    """Run the visit to its end.

    Raises:
        StageFailed: with the stage's own line if it gave one, else with the class and place of the crash; the
            traceback is in the owner's log.
    """
    grants = sandbox.python_grants(visit.zone, *visit.code.granted)
    grants = replace(
        grants,
        held=visit.reads,
        held_write=visit.writes,
        hidden=(*grants.hidden, *bytecode(visit.code.granted)),
        canary=canary,
        environment={**grants.environment, "PYTHONPATH": os.pathsep.join(map(str, visit.code.folders))},
    )
    endings: list[Mapping[str, Any]] = []
    log = OwnerLog(project, visit.stage)

    def hear(event: Mapping[str, Any]) -> None:
        if event["kind"] in ("error", "crash"):
            endings.append(event)
        if event["kind"] in ("progress", "answer"):
            listen(event)
        else:
            log.event(event)

    request_read, request_write = os.pipe()
    events_read, events_write = os.pipe()
    output_read, output_write = os.pipe()
    threads = [
        threading.Thread(target=_feed, args=(request_write, visit.request()), daemon=True),
        threading.Thread(target=_drain, args=(events_read, hear, visit.limits.output), daemon=True),
        threading.Thread(
            target=pass_on, args=(output_read, _output(visit, log), visit.limits.output), daemon=True
        ),
    ]
    passed = {3: request_read, 4: events_write}
    if visit.connection:
        ours, theirs = socket.socketpair()
        passed[connection.DESCRIPTOR] = theirs.detach()
        threads.append(threading.Thread(target=_answer, args=(ours, visit.connection, hear), daemon=True))
    for thread in threads:
        thread.start()
    try:
        outcome = sandbox.run(
            [sys.executable, "-B", "-P", "-s", "-m", visit.code.entry],
            grants,
            layers,
            pass_fds=passed,
            stdout=output_write,
            stderr=output_write,
            cwd=workspace,
            scratch=visit.scratch,
            watch=visit.watch,
            guarded=visit.guarded,
            limits=visit.limits.for_kernel(),
            insist=visit.insist,
            timeout=visit.limits.time,
        )
    finally:
        for descriptor in (*passed.values(), output_write):
            os.close(descriptor)
    for thread in threads:
        thread.join()
    said = endings and endings[0]["kind"] == "error"
    if log.failure and not said and not outcome.out_of_memory:
        raise log.failure
    if outcome.returncode != 0 or endings:
        raise _failure(visit, outcome, endings, project)
    return outcome


def bytecode(code: Iterable[Path]) -> list[Path]:
    """Compiled modules of a tool that is not installed but lies in a folder that somebody works in: whoever
    commits there could commit those too. What is installed among the packages keeps its own.
    """
    if any(part in ("site-packages", "dist-packages") for part in TOOL.parts):
        return []
    return [
        path for one in code if one.is_dir() for path in (one, *one.rglob("*/")) if _is_bytecode(path)
    ] + [folder for folder in {one.parent / BYTECODE_FOLDER for one in code} if folder.is_dir()]


def _is_bytecode(path: Path) -> bool:
    return path.name == BYTECODE_FOLDER


def _feed(descriptor: int, data: bytes) -> None:
    # A stage that dies before it has read everything tells so by its return code.
    with suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as pipe:
        pipe.write(data)


def _drain(descriptor: int, hear: Listener, most: int) -> None:
    for line in lines(descriptor, most):
        if (event := as_event(line)) is not None:
            with suppress(ValueError, KeyError, TypeError, OSError):  # as of a terminal that is gone
                hear(event)


def _answer(ours: socket.socket, exchange: connection.Exchange, hear: Listener) -> None:
    """If an answer cannot be had, the stage finds the connection closed and fails; the reason is known out
    here.
    """
    with ours, ours.makefile("rwb", buffering=0) as channel:
        try:
            connection.answer_over(channel, exchange)
        except AirlockError as error:
            hear(
                {
                    "kind": "error",
                    "class": type(error).__name__,
                    "message": str(error),
                    "exit_code": error.exit_code,
                }
            )
        except Exception as error:  # a cluster may fail in any way; the class is all that may be told
            hear({"kind": "note", "message": "traceback", "text": traceback.format_exc()})
            hear({"kind": "crash", "class": type(error).__name__, "where": "the cluster"})


def _output(visit: Visit, log: OwnerLog) -> Callable[[bytes], object]:
    """Where a stage's words go: one that saw records speaks to the owner only; an open stage may print."""
    return _print if visit.zone == "open" else log.words


def _print(data: bytes) -> None:
    # Whoever read along may be gone (`dvc repro | head`): the stage goes on.
    with suppress(OSError):
        os.write(sys.stderr.fileno(), data)


def _failure(
    visit: Visit, outcome: sandbox.Outcome, endings: list[Mapping[str, Any]], project: Project
) -> StageFailed:
    if outcome.out_of_memory:
        return StageFailed(
            f"stage '{visit.stage}' was ended: it took more memory than boundary.memory allows; allow more in "
            "params.yaml, or give it less work"
        )
    ending = endings[0] if endings else {"kind": "killed"}
    if ending["kind"] == "error":
        failure = StageFailed(f"{visit.stage}: {ending['message']} [{ending['class']}]")
        # A stage says what was wrong, and never how the command ends: that is one of two.
        failure.exit_code = (
            InputError.exit_code if ending["class"] in _WRONG_QUESTIONS else StageFailed.exit_code
        )
        return failure
    how = (
        f"{ending['class']} at {ending['where']}"
        if ending["kind"] == "crash"
        else f"exit status {outcome.returncode}"
    )
    disk = "make room if its disk is full, and " if ending.get("class") == "OSError" else ""
    return StageFailed(
        f"stage '{visit.stage}' crashed ({how}): {disk}see the owner's log, {project.log / visit.stage}.jsonl"
    )
