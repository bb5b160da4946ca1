"""Whether two runs of a stage made the same: bit for bit between like machines, within a tolerance between
others.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from airlock.inside.digests import sha256_path, walk

# Between unlike machines. Floating-point sums differ in their last digits; a prediction on the edge may go
# the other way.
TENSORS = 1e-4  # of the largest absolute value in the tensor
FIGURES = 0.02  # of a figure, or absolute where it is below 1: an accuracy may differ by two hundredths
ROWS = 0.02  # of the rows of a table
TOLERANCE = (
    f"tensors within {TENSORS:g} of their largest value, figures within {FIGURES:g}, tables in all "
    f"but {ROWS:.0%} of rows"
)

# Parts of the report page that tell the state of ledger and receipts when it was made, which has moved on
# since.
_OF_THEIR_TIME = (r'<h3 id="budget">.*?</section>', r'<section id="boundary".*?</section>')


def identical(left: Path, right: Path) -> bool:
    """Every bit."""
    return left.exists() and right.exists() and sha256_path(left) == sha256_path(right)


def same_page(left: Path, right: Path, *, figures: bool = True) -> bool:
    """The report page without what it says about the ledger and the receipts of its time.

    Args:
        left: one folder with a page.
        right: another.
        figures: with False, hashes and figures may differ, and nothing else: words, tables and pictures are
            the same.
    """
    return _timeless(left, figures) == _timeless(right, figures)


def _timeless(folder: Path, figures: bool) -> str:
    text = (folder / "report.html").read_text()
    for pattern in _OF_THEIR_TIME:
        text = re.sub(pattern, "", text, flags=re.DOTALL)
    return text if figures else re.sub(r"\b[0-9a-f]{12,64}\b|-?[0-9][0-9.,]*(?:e[-+]?[0-9]+)?", "#", text)


def close(left: Path, right: Path) -> bool:
    """Within the tolerance above, file by file."""
    if left.is_dir() != right.is_dir() or not right.exists():
        return False
    try:
        return _close(left, right)
    except (
        Exception
    ):  # a stranger wrote one of them: whatever cannot be read as its kind is not close to anything
        return False


def _close(left: Path, right: Path) -> bool:
    if not left.is_dir():
        return _close_files(left, right)
    ours, theirs = dict(walk(left)), dict(walk(right))
    return ours.keys() == theirs.keys() and all(
        _close_files(path, theirs[name]) for name, path in ours.items()
    )


def _close_files(left: Path, right: Path) -> bool:
    match left.suffix:
        case ".safetensors":
            return _close_tensors(left, right)
        case ".json":
            return _close_values(json.loads(left.read_text()), json.loads(right.read_text()))
        case ".csv":
            return _close_rows(left.read_text(), right.read_text())
        case _:
            return left.read_bytes() == right.read_bytes()


def _close_tensors(left: Path, right: Path) -> bool:
    import numpy as np
    from safetensors.numpy import load_file

    ours, theirs = load_file(left), load_file(right)
    if {name: value.shape for name, value in ours.items()} != {
        name: value.shape for name, value in theirs.items()
    }:
        return False
    # Written so that a NaN is not close to anything.
    return all(
        value.size == 0
        or float(np.abs(value - theirs[name]).max()) <= TENSORS * max(float(np.abs(value).max()), 1e-30)
        for name, value in ours.items()
    )


def _close_values(left: Any, right: Any) -> bool:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(
            _close_values(value, right[key]) for key, value in left.items()
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_close_values, left, right))
    if type(left) in (int, float) and type(right) in (int, float):
        counts = isinstance(left, int) and isinstance(right, int)
        return bool(abs(left - right) <= max(FIGURES * abs(left), 1 if counts else FIGURES))
    return bool(left == right)


def _close_rows(left: str, right: str) -> bool:
    ours, theirs = (list(csv.reader(io.StringIO(text))) for text in (left, right))
    if len(ours) != len(theirs) or ours[:1] != theirs[:1]:
        return False
    differing = sum(not _close_values(*map(_figures, pair)) for pair in zip(ours, theirs, strict=True))
    return differing <= ROWS * len(ours)


def _figures(row: list[str]) -> list[Any]:
    return [float(cell) if re.fullmatch(r"[-+0-9.eE]*\d[-+0-9.eE]*", cell) else cell for cell in row]
