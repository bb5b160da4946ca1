"""Sealed files open only with their key and only unchanged; the same input gives the same bytes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airlock.errors import SealError
from airlock.inside.sealed import (
    LENGTH,
    MAGIC,
    SealedReader,
    SealedWriter,
    facts_of,
    generation_of,
    meta_of,
    seal_contexts,
)
from airlock.privacy.plan import Facts
from airlock.records.encoding import Encoded, pack

KEY, ROWS = bytes(range(32)), 8
HEADER = len(MAGIC) + 16


def batch(rows: int, *, image: bool = False) -> pa.RecordBatch:
    generator = np.random.default_rng(rows)
    x = generator.integers(0, 256, (rows, 2, 2, 1), dtype=np.uint8) if image else generator.random((rows, 3))
    return pack(Encoded(x, generator.integers(0, 2, rows).astype(np.int32), np.ones(rows, dtype=np.uint8)))


def seal(path: Path, *batches: pa.RecordBatch, key: bytes = KEY) -> bytes:
    with SealedWriter(path, key, rows=ROWS) as writer:
        for each in batches:
            writer.write(each)
    return path.read_bytes()


def chunks_of(data: bytes) -> list[bytes]:
    found, place = [], HEADER
    while place < len(data):
        length = LENGTH.size + LENGTH.unpack(data[place : place + LENGTH.size])[0]
        found.append(data[place : place + length])
        place += length
    return found


def read_all(path: Path, key: bytes = KEY) -> pa.RecordBatch:
    with SealedReader(path, key) as reader:
        return pa.concat_batches(list(reader))


@pytest.mark.parametrize("image", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 8, 9, 24, 25])
def test_what_was_sealed_comes_back_in_fixed_chunks(tmp_path: Path, rows: int, image: bool) -> None:
    written = batch(rows, image=image)
    seal(tmp_path / "a", written)
    with SealedReader(tmp_path / "a", KEY) as reader:
        assert [each.num_rows for each in reader][:-1] == [ROWS] * (reader.chunks - 1)
        assert reader.read(reader.chunks - 1).num_rows <= ROWS
    assert read_all(tmp_path / "a").equals(written)


@given(cuts=st.lists(st.integers(0, 50), max_size=6))
def test_bytes_do_not_depend_on_how_records_arrived(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    folder, whole = tmp_path_factory.mktemp("seal"), batch(50)
    edges = [0, *sorted(cuts), 50]
    parts = [whole.slice(first, last - first) for first, last in pairwise(edges)]
    assert seal(folder / "a", whole) == seal(folder / "b", *parts)


def test_length_depends_on_the_number_of_records_only(tmp_path: Path) -> None:
    zeros = pack(Encoded(np.zeros((50, 3)), np.zeros(50, dtype=np.int32), np.zeros(50, dtype=np.uint8)))
    assert len(seal(tmp_path / "a", batch(50))) == len(seal(tmp_path / "b", zeros))


def test_plain_bytes_are_not_in_the_file(tmp_path: Path) -> None:
    written = batch(50)
    data = seal(tmp_path / "a", written)
    assert written.column("x").flatten().to_numpy()[7].tobytes() not in data
    assert b"valid" not in data


def test_chunks_can_be_read_in_any_order(tmp_path: Path) -> None:
    written = batch(50)
    seal(tmp_path / "a", written)
    with SealedReader(tmp_path / "a", KEY) as reader:
        for index in (5, 0, 3):
            assert reader.read(index).equals(written.slice(index * ROWS, ROWS))


def test_any_flipped_bit_is_found(tmp_path: Path) -> None:
    data = seal(tmp_path / "a", batch(20))
    for place in range(0, len(data), 37):
        changed = bytearray(data)
        changed[place] ^= 1
        (tmp_path / "b").write_bytes(changed)
        with pytest.raises(SealError, match=r"^b "):
            read_all(tmp_path / "b")


def test_wrong_key_is_told_from_changed_bytes(tmp_path: Path) -> None:
    seal(tmp_path / "a", batch(20))
    with pytest.raises(SealError, match="another key"):
        SealedReader(tmp_path / "a", bytes(32))


@pytest.mark.parametrize("kept", [0, 10, HEADER, HEADER + 2, -1, -100])
def test_truncated_file_is_found_on_opening(tmp_path: Path, kept: int) -> None:
    data = seal(tmp_path / "a", batch(20))
    (tmp_path / "b").write_bytes(data[:kept] if kept else b"")
    with pytest.raises(SealError, match=r"cut|not a sealed file|another key"):
        SealedReader(tmp_path / "b", KEY)


def test_a_missing_last_chunk_is_found_on_opening(tmp_path: Path) -> None:
    data = seal(tmp_path / "a", batch(20))
    (tmp_path / "b").write_bytes(data[:HEADER] + b"".join(chunks_of(data)[:-1]))
    with pytest.raises(SealError, match="last chunk is missing"):
        SealedReader(tmp_path / "b", KEY)


def test_appended_chunks_are_found(tmp_path: Path) -> None:
    data = seal(tmp_path / "a", batch(20))
    (tmp_path / "b").write_bytes(data + chunks_of(data)[0])
    with pytest.raises(SealError, match="was changed"):
        SealedReader(tmp_path / "b", KEY)
    # A longer file's next chunk, honestly sealed at that place, after the end of a shorter one.
    longer = seal(tmp_path / "c", batch(28))
    (tmp_path / "b").write_bytes(data + chunks_of(longer)[3])
    with pytest.raises(SealError, match="after its last one"):
        read_all(tmp_path / "b")


def test_reordered_chunks_are_found(tmp_path: Path) -> None:
    data = seal(tmp_path / "a", batch(30))
    first, second, *rest = chunks_of(data)
    (tmp_path / "b").write_bytes(data[:HEADER] + b"".join([second, first, *rest]))
    with pytest.raises(SealError, match="chunk 1 of 4"):
        read_all(tmp_path / "b")


def test_nulls_are_refused_and_a_failed_writer_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no nulls"):
        seal(tmp_path / "a", batch(5), pa.RecordBatch.from_pydict({"x": [1, None]}))
    assert list(tmp_path.iterdir()) == []


def test_facts_survive_meta_and_contexts_differ_by_file() -> None:
    facts = Facts("clinic", False, "tabular", 8, 2, (3,), ("a", "b"), "s", "f", {"train": {}})
    assert facts_of(meta_of(facts, generation=2)) == facts
    assert generation_of(meta_of(facts, generation=2)) == 2
    contexts = seal_contexts(facts, generation=2)
    assert contexts["train"] != contexts["holdout"]
    with pytest.raises(SealError, match="version"):
        facts_of({"version": 0})
