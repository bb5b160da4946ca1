"""Sealed files: Arrow record batches under deterministic authenticated encryption.

    file   = magic | key check | chunk...        chunk = length (4 bytes) | AES-GCM-SIV ciphertext
    nonce  = chunk index                         associated data = magic | key check | index | is it the last one

A chunk holds one uncompressed Arrow IPC stream with a fixed number of rows (the last one may have fewer) and
fixed-width, non-null columns only, so that lengths depend on the number of rows and nothing else. The same
input and key give the same bytes, which is what lets DVC cache them.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from airlock.errors import SealError
from airlock.privacy.plan import Facts

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
MAGIC = b"AIRSEAL\x01"
LENGTH = struct.Struct(">I")
ROWS = {"tabular": 4096, "image": 1024}
FILES = {"train": "train.sealed", "holdout": "holdout.sealed"}
META = "meta.json"


class _Cipher:
    """Seals and opens chunks by index."""

    def __init__(self, key: bytes) -> None:
        # AES-GCM-SIV does not commit to its key: the check value does, and tells a wrong key from a changed
        # byte.
        check = HKDF(hashes.SHA256(), 16, salt=None, info=b"airlock/1/seal check").derive(key)
        self.header = MAGIC + check
        self._aead = AESGCMSIV(key)

    def seal(self, data: bytes, index: int, *, last: bool) -> bytes:
        return self._aead.encrypt(self._nonce(index), data, self._associated(index, last))

    def open(self, data: bytes, index: int, *, last: bool) -> bytes | None:
        """The plain bytes, or None where the tag does not fit."""
        try:
            return self._aead.decrypt(self._nonce(index), data, self._associated(index, last))
        except InvalidTag:
            return None

    @staticmethod
    def _nonce(index: int) -> bytes:
        return index.to_bytes(12, "big")

    def _associated(self, index: int, last: bool) -> bytes:
        return self.header + index.to_bytes(8, "big") + bytes([last])


class SealedWriter:
    """Writes a sealed file; it appears under its name only when the `with` block ends well.

    Batches of any size go in; chunks of `rows` rows come out, whatever the sizes were.
    """

    def __init__(self, path: Path, key: bytes, *, rows: int = ROWS["tabular"]) -> None:
        self._path, self._temporary, self._rows = path, path.with_name(f".{path.name}.part"), rows
        self._cipher = _Cipher(key)
        self._pending: list[pa.RecordBatch] = []
        self._waiting = 0
        self._index = 0

    def __enter__(self) -> SealedWriter:
        self._file: BinaryIO = self._temporary.open("wb")
        self._file.write(self._cipher.header)
        return self

    def write(self, batch: pa.RecordBatch) -> None:
        """Take a batch; an empty one still tells the columns."""
        if any(column.null_count for column in batch.columns):
            raise ValueError("sealed columns have no nulls: their lengths would depend on values")
        if batch.num_rows or not self._pending:
            self._pending.append(batch)
            self._waiting += batch.num_rows
        # One chunk stays back, because only the end of the block shows which one is the last.
        if self._waiting > self._rows:
            table = self._combine()
            while table.num_rows > self._rows:
                self._seal(table.slice(0, self._rows), last=False)
                table = table.slice(self._rows)
            self._pending, self._waiting = [table], table.num_rows

    def _combine(self) -> pa.RecordBatch:
        import pyarrow as pa

        return self._pending[0] if len(self._pending) == 1 else pa.concat_batches(self._pending)

    def _seal(self, batch: pa.RecordBatch, *, last: bool) -> None:
        sealed = self._cipher.seal(_to_ipc(batch), self._index, last=last)
        self._file.write(LENGTH.pack(len(sealed)) + sealed)
        self._index += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._seal(self._combine(), last=True)
                self._file.close()
                os.replace(self._temporary, self._path)
        finally:
            self._file.close()
            self._temporary.unlink(missing_ok=True)


class SealedReader:
    """Reads a sealed file chunk by chunk, in any order.

    Raises:
        SealError: on opening, for a wrong key, a cut or an extended file; on reading, for a chunk that was
            changed or moved.
    """

    def __init__(self, path: Path, key: bytes) -> None:
        self._path, self._cipher = path, _Cipher(key)
        try:
            self._file: BinaryIO = path.open("rb")
        except OSError as error:
            raise SealError(
                f"{path.name} cannot be read ({error.strerror}): run `dvc repro ingest`"
            ) from None
        self._places = self._check()

    @property
    def chunks(self) -> int:
        """How many chunks there are."""
        return len(self._places)

    def read(self, index: int) -> pa.RecordBatch:
        """The record batch in chunk `index`."""
        import pyarrow as pa

        with pa.ipc.open_stream(pa.py_buffer(self._open(index))) as stream:
            return stream.read_next_batch()

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return (self.read(index) for index in range(self.chunks))

    def __enter__(self) -> SealedReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _check(self) -> list[tuple[int, int]]:
        header = self._file.read(len(self._cipher.header))
        if not header.startswith(MAGIC):
            raise self._error("is not a sealed file of this version")
        if header != self._cipher.header:
            raise self._error("was sealed with another key")
        self._places = list(self._scan(len(header)))
        if not self._places:
            raise self._error("was cut: it has no records left")
        self._open(self.chunks - 1)
        return self._places

    def _scan(self, place: int) -> Iterator[tuple[int, int]]:
        size = os.fstat(self._file.fileno()).st_size
        while place < size:
            self._file.seek(place)
            prefix = self._file.read(LENGTH.size)
            if len(prefix) < LENGTH.size or place + LENGTH.size + (length := LENGTH.unpack(prefix)[0]) > size:
                raise self._error("was cut in the middle of a chunk")
            yield place + LENGTH.size, length
            place += LENGTH.size + length

    def _open(self, index: int) -> bytes:
        place, length = self._places[index]
        self._file.seek(place)
        sealed, last = self._file.read(length), index == self.chunks - 1
        plain = self._cipher.open(sealed, index, last=last)
        if plain is None and self._cipher.open(sealed, index, last=not last) is not None:
            raise self._error(
                "was cut: its last chunk is missing" if last else "has chunks after its last one"
            )
        if plain is None:
            raise self._error(f"was changed: chunk {index + 1} of {self.chunks} is damaged or was moved")
        return plain

    def _error(self, problem: str) -> SealError:
        return SealError(
            f"{self._path.name} {problem}: run `dvc repro --force ingest`, or restore the project's keys"
        )


def _to_ipc(batch: pa.RecordBatch) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=None)) as stream:
        stream.write_batch(
            pa.RecordBatch.from_arrays([_exact(column) for column in batch.columns], schema=batch.schema)
        )
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _exact(array: pa.Array) -> pa.Array:
    """A copy with buffers of exactly its length: Arrow pads a slice with the values beside it, which differ
    by how it was cut.
    """
    import pyarrow as pa

    if pa.types.is_fixed_size_list(array.type):
        return pa.FixedSizeListArray.from_arrays(_exact(array.flatten()), type=array.type)
    width = array.type.bit_width // 8
    data = bytes(array.buffers()[1][array.offset * width : (array.offset + len(array)) * width])
    return pa.Array.from_buffers(array.type, len(array), [None, pa.py_buffer(data)])


def seal_contexts(facts: Facts, *, generation: int | None = None) -> dict[str, dict[str, Any]]:
    """What each sealed file's key is derived from, by role ("train", "holdout")."""
    shared: dict[str, Any] = {
        "version": VERSION,
        "population": facts.population,
        "fingerprint": facts.fingerprint,
        "schema": facts.schema,
        "split": dict(facts.split),
    }
    if generation is not None:
        shared["generation"] = generation
    return {role: {**shared, "path": f"data/sealed/{name}"} for role, name in FILES.items()}


def meta_of(facts: Facts, *, generation: int | None = None) -> dict[str, Any]:
    """The public document beside sealed files."""
    return {"version": VERSION, **asdict(facts), "ingest": {"generation": generation}}


def facts_of(meta: Mapping[str, Any]) -> Facts:
    """The public facts in meta.json.

    Raises:
        SealError: the document is of another version or was cut.
    """
    names = {field.name for field in fields(Facts)}
    # Sealed before there were slots for friends, before columns were described, before labels were numbers, and
    # before there were nights.
    later = {"friends": None, "columns": None, "label": "label", "layout": None, "number": None}
    meta = {**later, "participations": 1, "night": None, **meta}
    if meta.get("version") != VERSION or not names <= meta.keys():
        raise SealError(f"{META} is not of this version: run `dvc repro --force ingest`")
    return Facts.from_json({name: meta[name] for name in names})


def generation_of(meta: Mapping[str, Any]) -> int | None:
    """Which key generation sealed the files beside meta.json."""
    generation: int | None = meta.get("ingest", {}).get("generation")
    return generation
