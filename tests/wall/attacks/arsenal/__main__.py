"""Try every attack, each in a process of its own, and say what came of it."""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from arsenal import channels, history, persistence, processes, reading
from arsenal.kernel import MISSING

SECONDS = 10


PRIVILEGED = {
    f"{attack.__module__.removeprefix('arsenal.')}.{attack.__name__}"
    for module in (reading, history, processes, channels, persistence)
    for attack in module.PRIVILEGED
}


def attempts(config: dict[str, Any]) -> Iterator[tuple[str, Callable[[], bytes]]]:
    for attack in reading.ATTACKS:
        for target, path in config["targets"].items():
            yield f"reading.{attack.__name__}[{target}]", lambda attack=attack, path=path: attack(path)
    for module in (history, processes, channels, persistence):
        for each in module.ATTACKS:
            yield (
                f"{module.__name__.removeprefix('arsenal.')}.{each.__name__}",
                lambda each=each: each(config),
            )
    for name, path in config["tamper"].items():
        yield f"persistence.tamper[{name}]", lambda path=path: persistence.tamper(path)
    for name, path in config["plant"].items():
        yield f"persistence.plant[{name}]", lambda path=path: persistence.plant(path)


def attempt(attack: Callable[[], bytes]) -> dict[str, Any]:
    """In a child, because an attack may change its process for good or be killed for trying."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS)
        try:
            answer = {"got": base64.b64encode(attack()).decode(), "error": "", "missing": False}
        except BaseException as error:
            answer = {"got": "", "error": repr(error), "missing": getattr(error, "errno", None) in MISSING}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(said) if said else {"got": "", "error": f"ended with status {status}", "missing": False}


def main() -> None:
    with open(sys.argv[1]) as file:
        config = json.load(file)
    for name, attack in attempts(config):
        privileged = name.partition("[")[0] in PRIVILEGED
        print(json.dumps({"attack": name, "privileged": privileged, **attempt(attack)}), flush=True)


if __name__ == "__main__":
    main()
