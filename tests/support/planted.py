"""Distinctive values, and a search that finds them in any encoding anywhere below a folder."""

from __future__ import annotations

import base64
import gzip
import io
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from tests.conftest import Workspace

ROWS, COLUMNS = 240, 5
LOW, HIGH = 0.0, 1_000_000.0
FIRST_BYTES = np.uint64((1 << 24) - 1)
SCHEMA = """
name: planted
description: Distinctive values in every record.
kind: tabular
public: false
confirmed: true
label: {column: outcome, classes: [healthy, ill]}
columns:
"""


def plant(workspace: Workspace) -> None:
    """A private population whose every value would be recognised."""
    header = ",".join([f"c{index}" for index in range(COLUMNS)] + ["outcome"])
    lines = [
        ",".join([*(repr(float(number)) for number in row), "ill" if index % 3 else "healthy"])
        for index, row in enumerate(values(ROWS, COLUMNS))
    ]
    raw = workspace.home / "records.csv"
    raw.write_text("\n".join([header, *lines]) + "\n")
    columns = "".join(
        f"- {{name: c{index}, type: number, bounds: [{LOW}, {HIGH}], missing: refuse, why: test}}\n"
        for index in range(COLUMNS)
    )
    (workspace.root / "data/schemas/planted.yaml").write_text(SCHEMA + columns)
    workspace.set("dataset", "planted")
    workspace.run("airlock", "add", str(raw), "--name", "planted", "--epsilon", "3", "--delta", "1e-5")


def wanted(numbers: np.ndarray | None = None) -> Search:
    """Raw values, and the encoded ones that are sealed; those of `plant` unless others are given."""
    raw = values(ROWS, COLUMNS) if numbers is None else numbers
    encoded = (raw - LOW) / (HIGH - LOW)
    return Search(needles([*raw.ravel(), *encoded.ravel()]))


def values(rows: int, columns: int) -> np.ndarray:
    """Numbers with twelve random digits, none of which can turn up by chance."""
    generator = np.random.default_rng(20261116)
    return np.round(generator.uniform(100_000, 900_000, (rows, columns)), 6)


def needles(numbers: Iterable[float]) -> list[bytes]:
    """Every number as float and integer, either byte order, decimal, hexadecimal and base64 at each
    alignment.

    Always with twelve digits: six turn up by chance among a thousand noisy counts, or fractions of a second.
    """
    found: list[bytes] = []
    for number in map(float, numbers):
        little = struct.pack("<d", number)
        digits = 6 if number > 1 else 12
        integer = struct.pack("<q", round(number * 10**digits))
        binary = [little, little[::-1], integer]
        text = [repr(number), f"{number:.{digits}f}", little.hex(), integer.hex()]
        shifted = [base64.b64encode(b"\0" * shift + little)[4 if shift else 0 :][:8] for shift in range(3)]
        found += (
            binary
            + [item.encode() for item in text if len(item) >= 12]
            + [item for item in shifted if len(item) == 8]
        )
    return found


class Search:
    """Looks for many needles at once: each by its first eight bytes, in every window of every file, unpacked
    too. Of nearly all windows the first three bytes tell that none begins there.
    """

    def __init__(self, wanted: list[bytes]) -> None:
        self._wanted: dict[int, list[bytes]] = {}
        for needle in wanted:
            self._wanted.setdefault(int.from_bytes(needle[:8], "little"), []).append(needle)
        self._starts = np.array(sorted(self._wanted), dtype=np.uint64)
        self._begun = np.zeros(1 << 24, dtype=bool)
        self._begun[self._starts & FIRST_BYTES] = True

    def below(self, *folders: Path) -> list[str]:
        """Files in which a needle stands."""
        files = [
            path
            for folder in folders
            for path in ([folder] if folder.is_file() else sorted(folder.rglob("*")))
            if path.is_file()
        ]
        return [str(path) for path in files if any(self._in(layer) for layer in layers(path.read_bytes()))]

    def _in(self, data: bytes) -> bool:
        if len(data) < 8:
            return False
        windows = np.lib.stride_tricks.sliding_window_view(np.frombuffer(data, np.uint8), 8)
        for start in range(0, len(windows), 1 << 20):
            heads = np.ascontiguousarray(windows[start : start + (1 << 20)]).view("<u8").ravel()
            likely = np.flatnonzero(self._begun[heads & FIRST_BYTES])
            places = np.searchsorted(self._starts, heads[likely]).clip(max=len(self._starts) - 1)
            for hit in likely[self._starts[places] == heads[likely]]:
                if any(data.startswith(needle, start + int(hit)) for needle in self._wanted[int(heads[hit])]):
                    return True
        return False


def layers(data: bytes) -> Iterator[bytes]:
    """The bytes themselves, and whatever they unpack to: zlib (git), gzip, Parquet, Arrow."""
    yield data
    for unpack in (zlib.decompress, gzip.decompress, _parquet, _arrow):
        try:
            yield unpack(data)
        except (zlib.error, OSError, EOFError, pa.ArrowException, ValueError):
            continue


def _parquet(data: bytes) -> bytes:
    if data[:4] != b"PAR1":
        raise ValueError
    return _plain(pq.read_table(io.BytesIO(data)))


def _arrow(data: bytes) -> bytes:
    return _plain(pa.ipc.open_stream(data).read_all())


def _plain(table: pa.Table) -> bytes:
    return b"".join(
        bytes(buffer)
        for column in table.columns
        for chunk in column.chunks
        for buffer in chunk.buffers()
        if buffer is not None
    )
