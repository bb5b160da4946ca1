"""One shooting: put up the victims, run the arsenal in one mode, judge from outside what was hit. Prints
JSON.

    python stand.py full|no-root|minimum|bare BASE

The first three run it as an open stage, behind all layers, all but the new root, or the three that are always
there; `bare` with
no wall at all: the control, in which every attack must succeed.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from airlock.wall import layers, sandbox
from tests.wall.attacks.victims import Files, Memory, Process, Servers

HERE = Path(__file__).resolve().parent


def main() -> None:
    mode, base = sys.argv[1], Path(sys.argv[2])
    files = Files(base)
    servers, memory, process = Servers(base), Memory(), Process(files)
    known = [*files.secrets, *servers.secrets, *memory.secrets, *process.secrets]
    mark = secrets.token_hex(8)
    config = {
        "workspace": str(files.workspace),
        "targets": {name: str(path) for name, path in files.targets.items()},
        "tamper": {name: str(path) for name, path in files.tamper.items()},
        "plant": {name: str(path) for name, path in files.plant.items()},
        "daemon": mark,
        **servers.config,
        **memory.config,
        **process.config,
    }
    before = files.snapshot()
    os.set_inheritable(os.open(files.targets["raw"], os.O_RDONLY), True)
    try:
        lines, outcome = shoot(mode, base, files, config)
    finally:
        memory.close()
        process.close()
    after, survived = files.snapshot(), end_daemon(mark)
    for line in lines:
        line["won"] = judge(line, known, before, after, files, survived)
    for path in files.plant.values():
        path.unlink(missing_ok=True)
    print(json.dumps({"results": lines, "outcome": outcome}))


def shoot(
    mode: str, base: Path, files: Files, config: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    code = files.workspace / "attack"
    shutil.copytree(HERE / "arsenal", code / "arsenal")
    (code / "config.json").write_text(json.dumps(config))
    staging, scratch = base / "staging", Path(tempfile.mkdtemp(prefix="airlock-", dir="/dev/shm"))
    staging.mkdir()
    grants = sandbox.python_grants("open", files.workspace / "stages")
    grants = replace(
        grants,
        read=(*grants.read, code, files.dep, files.workspace / "dvc.yaml", files.workspace / "params.yaml"),
        execute=(*grants.execute, files.site),
        write=(staging,),
        canary=files.targets["key"],
        environment={**grants.environment, "PYTHONPATH": str(code)},
    )
    argv = [sys.executable, "-m", "arsenal", str(code / "config.json")]
    try:
        with tempfile.TemporaryFile() as output:
            outcome = run(mode, argv, grants, files, scratch, output)
            output.seek(0)
            return [json.loads(line) for line in output.read().splitlines()], outcome
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def run(
    mode: str, argv: list[str], grants: sandbox.Grants, files: Files, scratch: Path, output: Any
) -> dict[str, Any]:
    if mode == "bare":
        environment = {**grants.environment, "TMPDIR": str(scratch), "HOME": str(scratch)}
        subprocess.run(argv, stdout=output, env=environment, cwd=files.workspace, close_fds=False, check=True)
        return {}
    wanted = {"full": layers.ALL, "no-root": layers.ALL - {layers.Layer.ROOT}, "minimum": layers.MINIMUM}[
        mode
    ]
    outcome = sandbox.run(
        argv,
        grants,
        wanted,
        pass_fds={},
        stdout=output,
        stderr=None,
        cwd=files.workspace,
        scratch=scratch,
        watch=[*files.targets.values(), files.dep],
        timeout=300,
    )
    return {"returncode": outcome.returncode, "reads": outcome.reads, "recorder": outcome.recorder}


def judge(
    line: dict[str, Any],
    known: list[str],
    before: dict[str, Any],
    after: dict[str, Any],
    files: Files,
    survived: bool,
) -> bool:
    name = line["attack"]
    argument = name.partition("[")[2].rstrip("]")
    if name.startswith("persistence.tamper"):
        return bool(before[argument] != after[argument])
    if name.startswith("persistence.plant"):
        return files.plant[argument].exists()
    if name == "persistence.daemon":
        return survived
    got = base64.b64decode(line.pop("got"))
    return got.startswith(b"got in") or any(secret.encode() in got for secret in known)


def end_daemon(mark: str) -> bool:
    """Whether it is still there; ended now, by its number."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if command.rstrip(b"\0").endswith(mark.encode()):
            found.append(int(name))
    for number in found:
        os.kill(number, 9)
    return bool(found)


main()
