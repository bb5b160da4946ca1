"""Parts of a pass add up to the pass, whoever computes them and in whatever order they come."""

from __future__ import annotations

import random
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from airlock.inside.room import Room
from airlock.inside.sealed import SealedReader, SealedWriter
from airlock.models.features.features import feature_map
from airlock.models.features.projection import centre
from airlock.params import Params
from airlock.privacy.plan import Facts
from airlock.records.encoding import Encoded, pack
from airlock.run import dask_broker
from stages.release import cluster
from stages.release.passes import Records, Sums, Wanted

KEY, SHAPE, ROWS, CHUNKS = bytes(range(32)), (7,), 64, 9
FACTS = Facts(
    "clinic", False, "tabular", ROWS * CHUNKS - 5, 0, SHAPE, ("a", "b", "c"), "schema", "fingerprint"
)
QUESTION = Wanted({"mean": "sum", "gram": "gram", "cross": "cross"}, 3)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    """A worker's room with nine chunks of random records."""
    generator, n = np.random.default_rng(1), FACTS.n
    labels, valid = generator.integers(0, 3, n).astype(np.int32), (generator.random(n) > 0.1).astype(np.uint8)
    records = Encoded(generator.random((n, *SHAPE)), labels, valid)
    with SealedWriter(tmp_path / "train.sealed", KEY, rows=ROWS) as writer:
        writer.write(pack(records))
    return Room("worker", Params(), keys={"seal:train": KEY}, paths={"data/sealed": tmp_path})


def whole(room: Room) -> tuple[Records, Sums]:
    reader = SealedReader(room.path("data/sealed") / "train.sealed", KEY)
    assert reader.chunks == CHUNKS
    found = feature_map("tabular-2", "tabular", SHAPE)
    records = Records(reader, found, SHAPE)
    records.steps.append(centre(np.arange(found.width) * 1000, FACTS.n, bias=found.bias))
    return records, records.ask(QUESTION)


@pytest.mark.parametrize("seed", range(5))
def test_any_parts_in_any_order_give_the_same_bits(room: Room, seed: int) -> None:
    records, expected = whole(room)
    chance = random.Random(seed)
    edges = [0, *sorted(chance.sample(range(1, CHUNKS), 4)), CHUNKS]
    ranges = list(pairwise(edges))
    chance.shuffle(ranges)
    sums = cluster.ChunkSums(room)

    def answer(message: bytes) -> bytes:
        total: dict[str, np.ndarray] = {}
        for number, (first, last) in enumerate(ranges):
            dask_broker._add(
                total, cluster.pack({}, sums.answer(b"" if number else message, range(first, last)))
            )
        return dask_broker._pack(total)

    bias = feature_map("tabular-2", "tabular", SHAPE).bias
    remote = cluster.Cluster(answer, "id", FACTS, "tabular-2", bias, CHUNKS)
    found = remote.ask(QUESTION, records.steps)
    assert {name: value.tobytes() for name, value in found.items()} == {
        name: value.tobytes() for name, value in expected.items()
    }


def test_a_message_says_what_it_is_about(room: Room) -> None:
    header = {"chunks": 3, "facts": asdict(FACTS)}
    message = cluster.pack(header, {"centre": np.arange(3)})
    assert dask_broker.header(message)["chunks"] == 3
    assert cluster.unpack(message)[1]["centre"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(("chunks", "workers"), [(1, 1), (15, 4), (1000, 3), (10**6, 64)])
def test_ranges_cover_every_chunk_once(chunks: int, workers: int) -> None:
    ranges = dask_broker._ranges(chunks, workers)
    assert [first for first, _ in ranges[1:]] == [last for _, last in ranges[:-1]]
    assert (ranges[0][0], ranges[-1][1]) == (0, chunks)
    assert max(last - first for first, last in ranges) <= dask_broker.CHUNKS_PER_TASK
