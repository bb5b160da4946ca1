"""Where the sums of a pass are worked out: in this process, or on the workers of a cluster.

Sums are exact integers, so the bits of a release do not depend on where, in which order or how often a part
was computed. To a worker
go public things only: the question, the feature map's name, steps made from earlier releases. What comes back
are exact sums without noise; they meet their noise in the confined release stage. `main` is the worker's
side, which runs behind the wall as well.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.inside.connection import Exchange
from airlock.inside.room import Room
from airlock.inside.sealed import FILES, SealedReader
from airlock.models.features.features import feature_map
from airlock.models.features.projection import Step, steps_of, tensors_of
from airlock.privacy.plan import Facts
from stages.release.passes import Records, Sendable, Sums, Wanted

QUESTION = "question:"
# What a worker can be asked, and where it is; a message names one of these and nothing else.
KINDS = {
    "sums": "stages.release.passes.Wanted",
    "residuals": "stages.release.mechanisms.residuals.Residuals",
    "gaps": "stages.release.mechanisms.numbers.Gaps",
}


@dataclass(frozen=True)
class Cluster:
    """Asks the workers of a cluster, through the one granted connection."""

    exchange: Exchange
    release_id: str
    facts: Facts
    features: str
    bias: int
    chunks: int

    def ask(self, question: Sendable, steps: Sequence[Step]) -> Sums:
        """The sums over all chunks."""
        plain, tensors = question.packed()
        header = {
            "release": self.release_id,
            "facts": asdict(self.facts),
            "features": self.features,
            "bias": self.bias,
            "chunks": self.chunks,
            "kind": question.kind,
            "question": plain,
        }
        named = {QUESTION + name: value for name, value in tensors.items()}
        return unpack(self.exchange(pack(header, {**tensors_of(steps), **named})))[1]


def pack(header: Mapping[str, Any], tensors: Mapping[str, NDArray[np.int64]]) -> bytes:
    """A message: tensors with a header. No pickle, so nothing in it can run."""
    from safetensors.numpy import save

    return bytes(
        save(
            {name: np.ascontiguousarray(value) for name, value in tensors.items()},
            {"header": json.dumps(header)},
        )
    )


def unpack(message: bytes) -> tuple[dict[str, Any], dict[str, NDArray[np.int64]]]:
    """The inverse of `pack`."""
    from safetensors.numpy import load

    length = int.from_bytes(message[:8], "little")
    return json.loads(json.loads(message[8 : 8 + length])["__metadata__"]["header"]), load(message)


def main(room: Room) -> None:
    """Answer for ranges of chunks until there is nothing more to do.

    The broker of the worker answers every message with the next request: `first:last:` and, where it is new,
    what is asked.
    """
    assert room.connection is not None
    sums, answer = ChunkSums(room), b""
    while request := room.connection(answer):
        bounds, message = request.split(b";", 1)
        first, last = (int(bound) for bound in bounds.split(b":"))
        answer = pack({}, sums.answer(message, range(first, last)))


class ChunkSums:
    """Holds the sealed file open, and what is asked in this pass."""

    def __init__(self, room: Room) -> None:
        self._reader = SealedReader(room.path("data/sealed") / FILES["train"], room.keys["seal:train"])
        self._release = ""
        self._question: Sendable = Wanted({})
        self._records: Records

    def answer(self, message: bytes, chunks: range) -> Sums:
        """The sums over some chunks. An empty message means: as before."""
        if message:
            self._prepare(*unpack(message))
        return self._records.sums_over(chunks, self._question)

    def _prepare(self, header: Mapping[str, Any], tensors: Mapping[str, NDArray[np.int64]]) -> None:
        facts, name = header["facts"], header["features"]
        if header["release"] != self._release:
            shape = tuple(facts["shape"])
            self._records = Records(self._reader, feature_map(name, facts["kind"], shape), shape)
            self._release = header["release"]
        steps = {name: value for name, value in tensors.items() if not name.startswith(QUESTION)}
        self._records.steps = steps_of(steps, header["bias"]) if steps else []
        asked = {
            name.removeprefix(QUESTION): value for name, value in tensors.items() if name.startswith(QUESTION)
        }
        self._question = _kind(header["kind"]).unpacked(header["question"], asked)


def _kind(name: str) -> type[Sendable]:
    module, _, last = KINDS[name].rpartition(".")
    found: type[Sendable] = getattr(importlib.import_module(module), last)
    return found
