"""Commands that start from a process which has imported what they need already.

Half of what a short command costs is imports, the same ones hundreds of times. One process for `airlock` and one for
`dvc` import them once and fork for every command; the child runs the command's own `main` to the end of its
interpreter, with its own arguments, folder, environment, streams and exit status. Below a forked `dvc`, `airlock` is
forked in the same way. What a command starts besides (stages behind the wall, git) is started as it always is.

Run as a program, this file is that process.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

BIN = Path(sys.executable).parent
# By command: where its `main` is, and what is imported before it is asked for. DVC takes hold of the streams when it is
# imported, and `airlock` guards them first: it is left to the command to import.
MAINS = {"airlock": "airlock.cli", "dvc": "dvc.cli"}
MODULES = {
    "airlock": (
        *("airlock.run.stage", "airlock.run.orders", "airlock.run.budget", "airlock.run.stage_output"),
        *("airlock.owner.checks", "airlock.evidence.audit", "airlock.evidence.evaluation"),
        *("airlock.evidence.page", "airlock.run.failures", "typer._adapters", "rich.table", "rich.progress"),
        *("pyparsing", "ruamel.yaml", "tqdm", "mpmath", "sqlalchemy.dialects.sqlite"),
    ),
    "dvc": (
        *(
            "dvc.cli.parser",
            "dvc.repo.reproduce",
            "dvc.repo.status",
            "dvc.repo.experiments",
            "dvc.repo.index",
        ),
        *("dvc.repo.artifacts", "dvc.repo.datasets", "dvc.repo.plots", "dvc.repo.stage", "dvc.repo.graph"),
        *("dvc.repo.trie", "dvc.stage.run", "dvc.parsing", "dvc.data_cloud", "dvc.cachemgr"),
        *("dvc.utils.strictyaml", "dvc_data.hashfile.db.local", "dulwich.ignore", "dulwich.worktree"),
        *("networkx", "configobj", "platformdirs.unix", "ruamel.yaml", "pyparsing", "flatten_dict"),
    ),
}
# Read by the interpreter or by a library when it is loaded: these need a start of their own.
EARLY = ("PYTHON", "LD_", "MALLOC", "OPENBLAS", "MKL", "COVERAGE")
THREADS = "OMP_NUM_THREADS"
LONGEST_FOLDER = 60  # the name of a socket has at most 107 bytes
# For a command that is to start as it does for a user, with all that it starts.
NOT_FORKED = {"PYTHONNOUSERSITE": "1"}


# What a forked DVC finds as `airlock`: it asks for a fork in its own folder, with its own streams and environment, and
# ends as that does.
ASK = """#!{python} -IS
import json, os, socket, sys

environment = dict(os.environ, PATH=os.environ["PATH"].partition(":")[2])
asked = json.dumps([["airlock", *sys.argv[1:]], os.getcwd(), environment]).encode()
line = socket.socket(socket.AF_UNIX)
line.connect({place!r})
socket.send_fds(line, [len(asked).to_bytes(4, "little")], [1, 2])
line.sendall(asked)
answer = b""
while len(answer) < 8:
    part = line.recv(8 - len(answer))
    if not part:
        sys.exit("the process with the imports has ended")
    answer += part
status = int.from_bytes(answer[4:], "little", signed=True)
if status < 0:
    os.kill(os.getpid(), -status)
sys.exit(status)
"""


def fits(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a fork is the same as a start."""
    return (
        command[0] in MAINS
        and environment.get("PATH", "").split(":")[0] == str(BIN)
        and environment.get(THREADS) == "1"
        and not any(name.startswith(EARLY) for name in environment)
    )


def run(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with text that is captured."""
    pipes = [os.pipe(), os.pipe()]
    below = {"PATH": f"{_folder_with_airlock()}:{environment['PATH']}"} if command[0] == "dvc" else {}
    asked = json.dumps([list(command), str(cwd), {**environment, **below}]).encode()
    with socket.socket(socket.AF_UNIX) as line, ThreadPoolExecutor(len(pipes)) as threads:
        line.settimeout(timeout)
        line.connect(_server(command[0]))
        socket.send_fds(line, [len(asked).to_bytes(4, "little")], [write for _, write in pipes])
        line.sendall(asked)
        for _, write in pipes:
            os.close(write)
        said = [threads.submit(_read, read) for read, _ in pipes]
        child = int.from_bytes(_receive(line, 4), "little")
        try:
            status = int.from_bytes(_receive(line, 4), "little", signed=True)
        except TimeoutError:
            os.kill(child, signal.SIGKILL)
            raise subprocess.TimeoutExpired(command, timeout) from None
        return subprocess.CompletedProcess(command, status, *(one.result() for one in said))


def _read(descriptor: int) -> str:
    with open(descriptor) as pipe:
        return pipe.read()


def _receive(line: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = line.recv(size - len(data))
        assert part, "the process with the imports has ended"
        data += part
    return data


@cache
def _server(command: str) -> str:
    """Where the process for one command listens; it ends with this one."""
    short = len(tempfile.gettempdir()) < LONGEST_FOLDER
    folder = tempfile.TemporaryDirectory(prefix="airlock-preloaded-", dir=None if short else "/tmp")
    place = f"{folder.name}/socket"
    kept = {name: os.environ[name] for name in ("LANG", "HOME", "TMPDIR") if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, "-P", __file__, command, place],
        env={**kept, "PATH": f"{BIN}:{os.environ['PATH']}", THREADS: "1", "DVC_NO_ANALYTICS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd="/",
    )
    assert process.stdin and process.stdout
    assert process.stdout.readline() == b"ready\n"
    atexit.register(folder.cleanup)
    atexit.register(process.wait)
    atexit.register(process.stdin.close)  # the first of the three to be called
    return place


@cache
def _folder_with_airlock() -> str:
    folder = Path(_server("airlock")).parent
    (folder / "airlock").write_text(ASK.format(python=sys.executable, place=_server("airlock")))
    (folder / "airlock").chmod(0o700)
    return str(folder)


def _serve(place: str) -> list[str]:
    """Fork for whoever asks. Returns only in a child, with its arguments, when all else is as it asked for."""
    waiting, door = selectors.DefaultSelector(), socket.socket(socket.AF_UNIX)
    door.bind(place)
    door.listen()
    waiting.register(door, selectors.EVENT_READ)
    waiting.register(0, selectors.EVENT_READ)
    os.write(1, b"ready\n")
    while True:
        for key, _ in waiting.select():
            if key.fd == 0:
                os._exit(0)
            if key.fileobj is not door:
                waiting.unregister(key.fd)
                _answer(key.fd, *key.data)
                continue
            line, _ = door.accept()
            size, descriptors, _, _ = socket.recv_fds(line, 4, 2)
            command, folder, environment = json.loads(_receive(line, int.from_bytes(size, "little")))
            child = os.fork()
            if not child:
                others = [each.data[1] for each in waiting.get_map().values() if each.data]
                for one in (
                    door,
                    line,
                    *others,
                ):  # or a socket would be closed under a number that is another's
                    one.detach()
                waiting.close()
                _become(folder, environment, descriptors)
                return list(command)
            for descriptor in descriptors:
                os.close(descriptor)
            line.sendall(child.to_bytes(4, "little"))
            waiting.register(os.pidfd_open(child), selectors.EVENT_READ, (child, line))


def _answer(ended: int, child: int, line: socket.socket) -> None:
    os.close(ended)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    with line:
        line.sendall(status.to_bytes(4, "little", signed=True))


def _become(folder: str, environment: dict[str, str], descriptors: list[int]) -> None:
    """A command of its own: what a new process is given."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, descriptor in enumerate(descriptors, 1):
        os.dup2(descriptor, number)
    os.closerange(3, 256)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    tempfile.tempdir = None
    gc.enable()


def main() -> None:
    """Import, then serve; and in a child, be the command."""
    name, place = sys.argv[1:]
    gc.disable()
    for module in (MAINS[name], *MODULES[name]):
        importlib.import_module(module)
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would not be there in a child"
    gc.freeze()
    _, *arguments = _serve(place)
    sys.argv = [str(BIN / name), *arguments]
    sys.path[:] = [folder for folder in sys.path if folder != str(Path(__file__).parent)]
    sys.exit(importlib.import_module(MAINS[name]).main())


if __name__ == "__main__":
    main()
