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
    return None if header is None else _read(channel, LENGTH.unpack(header)[0])


def _read(channel: RawIOBase, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        part = channel.read(min(size - len(data), 1 << 20))
        if not part:
            return None
        data += part
    return bytes(data)
