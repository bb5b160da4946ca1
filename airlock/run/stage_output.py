"""What a stage says, taken down to what may be believed and shown: bounded in length, checked in form,
without control characters.
"""

from __future__ import annotations

import codecs
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

LONGEST_LINE = 16 << 20
"""Of an event. The longest that honest code sends is the answer about the price of a sweep."""
_LONGEST_TEXT = 2000
_CHUNK = 1 << 16
_TEXTS: Mapping[str, tuple[str, ...]] = {
    "note": (),
    "answer": (),
    "progress": ("label",),
    "error": ("class", "message"),
    "crash": ("class", "where"),
}


def printable(text: str, longest: int = _LONGEST_TEXT) -> str:
    """One line without anything that a terminal obeys."""
    return "".join(mark if mark.isprintable() else " " for mark in text[:longest])


def lines(descriptor: int, most: int) -> Iterator[bytes]:
    """Lines from a pipe until its end.

    Those that are too long, and all after `most` bytes, are read and forgotten.
    """
    received = 0
    with os.fdopen(descriptor, "rb") as pipe:
        while line := pipe.readline(LONGEST_LINE):
            whole = line.endswith(b"\n")
            received += len(line)
            if whole and received <= most:
                yield line
            while not whole and (rest := pipe.readline(_CHUNK)):
                whole = rest.endswith(b"\n")


def event(line: bytes) -> dict[str, Any] | None:
    """The event in a line, or None where it is none: a stage may send what it likes."""
    try:
        found = json.loads(line)
        texts = {name: printable(found[name]) for name in _TEXTS[found["kind"]]}
    except (ValueError, KeyError, TypeError, RecursionError, AttributeError):
        return None
    if found["kind"] != "progress":
        return {**found, **texts}
    numbers = {name: found.get(name) for name in ("done", "total")}
    if not all(isinstance(number, int | float) and math.isfinite(number) for number in numbers.values()):
        return None
    return {"kind": "progress", **texts, **numbers}


def pass_on(descriptor: int, write: Callable[[bytes], object], most: int) -> None:
    """Pass on what a stage prints, as text that no terminal obeys, until its end; after `most` bytes it is
    read and forgotten.
    """
    decoder, received = codecs.getincrementaldecoder("utf-8")(errors="replace"), 0
    with os.fdopen(descriptor, "rb", buffering=0) as pipe:
        while block := pipe.read(_CHUNK):
            received += len(block)
            if received - len(block) > most:
                continue
            text = decoder.decode(block)
            write("".join(mark for mark in text if mark.isprintable() or mark in "\n\t").encode())
            if received > most:
                write(b"\n(more was printed than boundary.output allows: dropped)\n")
