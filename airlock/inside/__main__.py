"""The first code that runs inside the sandbox: receive the room, run the stage, report how it ended.

Descriptor 3 brings the request (parameters, facts, paths, keys) and is closed at once; descriptor 4 takes
events back; descriptor 5, where it was granted, is the connection to a cluster.
"""

from __future__ import annotations

import base64
import importlib
import json
import os
import traceback
from pathlib import Path
from typing import Any

from airlock.errors import AirlockError
from airlock.inside import connection, lifetime, sources
from airlock.inside.room import Event, Room
from airlock.params import Params

REQUEST, EVENTS = 3, 4
MAIN = "main"


def main() -> int:
    """Run one stage. What it may say in public is decided here, in one place."""
    sources.only()
    with open(REQUEST, "rb") as pipe:
        request = json.loads(pipe.read())
    os.set_inheritable(EVENTS, False)

    def send(event: Event) -> None:
        line = json.dumps(dict(event), default=str).encode() + b"\n"
        while line:
            line = line[os.write(EVENTS, line) :]

    try:
        room = _room(request, send)
        function = request.get("function", MAIN)
        answer = getattr(importlib.import_module(request["module"]), function)(room)
        if function != MAIN:
            send({"kind": "answer", "answer": answer})
    except AirlockError as error:
        send(
            {
                "kind": "error",
                "class": type(error).__name__,
                "message": str(error),
                "exit_code": error.exit_code,
            }
        )
        return error.exit_code
    except BaseException as error:  # every end is reported to the broker, which decides what is shown
        send({"kind": "note", "message": "traceback", "text": traceback.format_exc()})
        send({"kind": "crash", "class": type(error).__name__, "where": _where(error)})
        return 70
    return 0


def _room(request: dict[str, Any], send: Any) -> Room:
    return Room(
        stage=request["stage"],
        params=Params.model_validate(request["params"]),
        facts=request["facts"],
        keys={name: base64.b64decode(key) for name, key in request["keys"].items()},
        paths={name: Path(path) for name, path in request["paths"].items()},
        send=send,
        connection=_connection() if request["connected"] else None,
    )


def _connection() -> connection.Exchange:
    os.set_inheritable(connection.DESCRIPTOR, False)
    return connection.exchange_over(open(connection.DESCRIPTOR, "r+b", buffering=0))


def _where(error: BaseException) -> str:
    """File and line of our own code, which say nothing about a record."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/stages/" in frame.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"


if __name__ == "__main__":
    lifetime.begin()
    lifetime.leave(main())
