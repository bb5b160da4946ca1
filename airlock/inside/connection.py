"""The one connection that a confined stage can be granted: messages to the broker, which passes them on to a
cluster.

Inside the sandbox there is no network; descriptor 5 is one end of a socket pair, and the broker holds the
other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from io import RawIOBase

Exchange = Callable[[bytes], bytes]
"""Sends a message, waits for the answer."""

DESCRIPTOR = 5
LENGTH = struct.Struct(">Q")
MOST_BYTES = 1 << 31


def exchange_over(channel: RawIOBase) -> Exchange:
    """The stage's side."""

    def exchange(message: bytes) -> bytes:
        _send(channel, message)
        answer = _receive(channel)
        if answer is None:
            raise ConnectionError("the broker closed the connection")
        return answer

    return exchange


def answer_over(channel: RawIOBase, exchange: Exchange) -> None:
    """The broker's side: answer every message until the stage closes its end."""
    while (message := _receive(channel)) is not None:
        _send(channel, exchange(message))


def _send(channel: RawIOBase, message: bytes) -> None:
    for part in (LENGTH.pack(len(message)), message):
        left = memoryview(part)
        while left:
            left = left[channel.write(left) or 0 :]


def _receive(channel: RawIOBase) -> bytes | None:
    header = _read(channel, LENGTH.size)
    if header is None:
        return None
    size: int = LENGTH.unpack(header)[0]
    if size > MOST_BYTES:  # the other side is a stage, or a cluster: it does not fill this side's memory
        raise ConnectionError(f"a message of {size} bytes: more than a pass over records needs")
    return _read(channel, size)


def _read(channel: RawIOBase, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = channel.read(min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)
