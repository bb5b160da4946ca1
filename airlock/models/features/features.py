"""Feature maps by name. A name carries a version: what `hog-2` computes never changes.

Every map is data-independent and works record by record: encoded records in, integer rows of norm at most
LIMIT out.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import ParamsError
from airlock.models.features import encoder, hybrid, images, prior, tables
from airlock.models.features.rows import Rows, check

DEFAULTS = {"image": "hog-2", "tabular": "tabular-2"}
NAMES = (
    "edges-1",
    "strokes-1",
    "hog-2",
    "hog-1",
    "gabor-1",
    "prior-1",
    "onnx:FILE",
    "tabular-2",
    "cosine-WIDTH-1",
    "hybrid-WIDTH-1",
)
FILTERS = {
    "hog-1": (images.hog, 20),
    "hog-2": (images.hog_tents, 20),
    "gabor-1": (images.gabor, 16),
    "edges-1": (images.edges, 36),
    "strokes-1": (images.strokes, 36),
}
"""Maps of pictures by fixed filters, and how many channels each has beside the colours."""
COSINE = re.compile(r"cosine-(\d{1,5})-1")


@dataclass(frozen=True)
class FeatureMap:
    """One feature map for records of one shape.

    Attributes:
        name: with its version.
        width: number of features.
        bias: the constant column that is appended when rows are centred; 0 for none.
        costly: worth keeping between passes.
        transform: from encoded records to integer rows.
        whitened: rows have so many directions that whitening them pays.
        spectrum: of a map that was learned from generated pictures, the part of their variance in every column before
            columns were scaled alike; they sum to 1, and are public.
    """

    name: str
    width: int
    bias: int
    costly: bool
    transform: Callable[[NDArray[Any]], Rows]
    whitened: bool = False
    spectrum: NDArray[np.float64] | None = field(default=None, compare=False)

    def __call__(self, records: NDArray[Any], valid: NDArray[np.uint8]) -> Rows:
        """Rows of encoded records; a null record is a row of zeros."""
        if not len(records):
            return np.zeros((0, self.width))
        return check(self.transform(records) * valid.astype(np.float64)[:, None])


def choose(wanted: str, kind: str, schema: str | None) -> str:
    """The map that params.yaml names, or else the schema's, or else one per kind of data.

    Tables that are released in rounds have a better one: airlock/models/features/choice.py.
    """
    return (schema or DEFAULTS[kind]) if wanted == "auto" else wanted


def feature_map(name: str, kind: str, shape: tuple[int, ...]) -> FeatureMap:
    """The map of that name for encoded records of `shape`.

    Raises:
        ParamsError: there is no such map for this kind of data.
    """
    if kind == "image" and name in FILTERS:
        if name == "strokes-1" and shape[2] != 1:
            raise ParamsError(
                "params.yaml: release.features 'strokes-1' is a map for grey pictures: use edges-1"
            )
        transform, channels = FILTERS[name]
        width = images.cells(shape) * (shape[2] + channels)
        return FeatureMap(name, width, 0, True, transform, whitened=True)
    if kind == "image" and name == "prior-1":
        made = prior.prior(shape[2])
        return FeatureMap(name, len(made.scale), 0, True, made, whitened=True, spectrum=made.spectrum)
    if kind == "image" and encoder.NAME.fullmatch(name):
        brought = encoder.Encoder(name, shape)
        return FeatureMap(name, brought.width, 0, True, brought, whitened=True)
    if kind == "tabular" and name == "tabular-2":
        return FeatureMap(name, shape[0], tables.bias(shape[0]), False, tables.linear)
    matched = COSINE.fullmatch(name)
    if kind == "tabular" and matched and int(matched[1]) > 0:
        width = int(matched[1])
        return FeatureMap(name, width, 0, True, partial(tables.cosine, width=width))
    if kind == "tabular" and (found := _hybrid(name, shape)):
        return found
    raise ParamsError(
        f"params.yaml: release.features '{name}' is not a map for {kind} data: use auto or one of "
        f"{', '.join(NAMES)}"
    )


def _hybrid(name: str, shape: tuple[int, ...]) -> FeatureMap | None:
    """The hybrid map of that name, if it is one and its layout is of so many encoded columns."""
    matched = hybrid.NAME.fullmatch(name)
    if not matched or int(matched[1]) < 1:
        return None
    width, layout = int(matched[1]), matched[2] or f"nx{shape[0]}"
    try:
        fits = sum(run.encoded for run in hybrid.runs_of(layout)) == shape[0]
        fits &= hybrid.width_of(layout, width) <= hybrid.LARGEST
    except ValueError:
        return None
    transform = partial(hybrid.hybrid, width=width, layout=layout)
    size = hybrid.width_of(layout, width)
    return FeatureMap(name, size, hybrid.bias(), True, transform, whitened=True) if fits else None
