"""What a release says about its inputs, as a value and as the Parquet file beside a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import InputError

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Explanation:
    """What a release says about its inputs.

    Attributes:
        names: of the inputs: columns of the encoded table, or "down x across" of a cell.
        grid: cells down and across, of pictures.
        labels: of the classes.
        relevance: (inputs, classes): mean contribution to a class's score over its own records.
        low, high: of the same, where noise is drawn again by its law (QUANTILES).
        direction: (inputs, classes): what a larger input does to a class's score, +1 or -1; 0 for cells.
        noise: of each input, after all steps: standard deviation of the noise on its moments, in units of the
            input's own spread over all records; None where it cannot be told.
    """

    names: tuple[str, ...]
    grid: tuple[int, int] | None
    labels: tuple[str, ...]
    relevance: Array
    low: Array
    high: Array
    direction: Array
    noise: Array | None

    @property
    def overall(self) -> Array:
        """Of each input for all classes: the mean size of what it contributes."""
        size: Array = np.abs(self.relevance).mean(axis=1)
        return size


def table_of(found: Explanation) -> dict[str, list[Any]]:
    """As columns of a Parquet file: a row for each input and class."""
    inputs, classes = found.relevance.shape
    noise = [None] * inputs if found.noise is None else [float(one) for one in found.noise]
    return {
        "input": [found.names[place] for place in range(inputs) for _ in range(classes)],
        "class": [label for _ in range(inputs) for label in found.labels],
        "relevance": found.relevance.ravel().tolist(),
        "low": found.low.ravel().tolist(),
        "high": found.high.ravel().tolist(),
        "direction": found.direction.ravel().tolist(),
        "noise": [noise[place] for place in range(inputs) for _ in range(classes)],
    }


def explanation_of(table: Mapping[str, Sequence[Any]], grid: tuple[int, int] | None) -> Explanation:
    """The inverse of `table_of`."""
    labels = tuple(dict.fromkeys(str(one) for one in table["class"]))
    shape = (-1, len(labels))
    arrays = {
        name: np.array(table[name], float).reshape(shape)
        for name in ("relevance", "low", "high", "direction")
    }
    noise = [table["noise"][place] for place in range(0, len(table["noise"]), len(labels))]
    return Explanation(
        tuple(str(one) for one in table["input"][:: len(labels)]),
        grid,
        labels,
        **arrays,
        noise=None if any(one is None for one in noise) else np.array(noise, float),
    )


def read(path: Path) -> Explanation:
    """What a train stage wrote beside its model.

    Raises:
        InputError: there is nothing, or it is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        grid = (table.schema.metadata or {}).get(b"grid", b"").decode()
        down, _, across = grid.partition(",")
        found = explanation_of(table.to_pydict(), (int(down), int(across)) if grid else None)
    except FileNotFoundError:
        raise InputError(
            f"{path.parent} says nothing about its inputs: give a FILE of records, or run `dvc repro train` again"
        ) from None
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, IndexError):
        raise InputError(f"{path} is damaged: run `dvc repro train` or `dvc pull` again") from None
    return found
