"""Images of any storage as uint8 arrays (n, height, width, channels)."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from airlock.errors import RecordError, SchemaError
from airlock.records.schema import Image
from airlock.records.values import Values, flat, is_number, numbers

FORMATS = ("JPEG", "PNG")
WRONG_SIZE = "an image of another size than the schema's"
WRONG_DEPTH = (
    "an image of another depth than the schema's: say `depth: 16` there for grey pictures of 16 bits"
)
DEEP = ("I", "I;16", "I;16B", "I;16L", "F")


def encode(read: Callable[[str], Values], image: Image, valid: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Encode a batch of images; `valid` loses the rows that the policy drops.

    Raises:
        RecordError: an image is missing, has another size, or cannot be decoded.
        SchemaError: a column's type holds no image.
    """
    shape = (len(valid), image.height, image.width, image.channels)
    if image.column is None:
        return _from_columns(read, image, valid).reshape(shape)
    values = read(image.column)
    array = flat(values.array)
    missing = pc.is_null(array).to_numpy(zero_copy_only=False)
    _apply_policy(values, image, missing, valid)
    out = np.zeros((len(valid), image.size), dtype=np.uint8)
    out[~missing] = _from_column(values, array.drop_null(), image, np.flatnonzero(~missing))
    return out.reshape(shape)


def _from_columns(read: Callable[[str], Values], image: Image, valid: NDArray[np.bool_]) -> NDArray[np.uint8]:
    out = np.zeros((len(valid), image.size), dtype=np.uint8)
    for place, name in enumerate(image.sources):
        values = read(name)
        found, missing = numbers(values)
        _apply_policy(values, image, missing, valid)
        out[:, place] = _to_bytes(values, found, image)
    return out


def _apply_policy(values: Values, image: Image, missing: NDArray[np.bool_], valid: NDArray[np.bool_]) -> None:
    if image.missing == "refuse":
        values.refuse(missing, "a missing image")
    values.count("missing", missing)
    valid &= ~missing


def _from_column(values: Values, array: Any, image: Image, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    kind = array.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return (
            _from_compressed(values, array, image, rows)
            if image.encoding == "compressed"
            else _from_bytes(values, array, image, rows)
        )
    if (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    ) and is_number(kind.value_type):
        return _from_lists(values, array, image, rows)
    raise SchemaError(
        f"column '{values.name}' holds {kind}: an image is bytes, a list of numbers, JPEG or PNG"
    )


def _from_bytes(values: Values, array: Any, image: Image, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    length = image.size * image.depth // 8
    _refuse(values, pc.binary_length(array).to_numpy(zero_copy_only=False) != length, rows, WRONG_SIZE)
    raw = np.frombuffer(b"".join(array.to_pylist()), dtype=np.uint8 if image.depth == 8 else "<u2")
    return _to_bytes(values, raw.reshape(len(rows), image.size), image)


def _from_lists(values: Values, array: Any, image: Image, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    _refuse(
        values, pc.list_value_length(array).to_numpy(zero_copy_only=False) != image.size, rows, WRONG_SIZE
    )
    inner = pc.fill_null(pc.cast(array.flatten(), pa.float64(), safe=False), float("nan"))
    found = inner.to_numpy(zero_copy_only=False).reshape(len(rows), image.size)
    _refuse(values, ~np.isfinite(found).all(axis=1), rows, "a missing pixel, NaN or infinity")
    return _to_bytes(values, found, image)


def _from_compressed(values: Values, array: Any, image: Image, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    out = np.zeros((len(rows), image.size), dtype=np.uint8)
    for place, data in enumerate(array.to_pylist()):
        decoded = _decode(data, image)
        if isinstance(decoded, str):
            _refuse(values, np.arange(len(rows)) == place, rows, decoded)
            continue
        out[place] = _to_bytes(values, decoded, image)
    return out


def _decode(data: bytes, image: Image) -> NDArray[Any] | str:
    """The pixels, or what is wrong with them."""
    import PIL.Image

    try:
        with PIL.Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            if picture.size != (image.width, image.height):
                return WRONG_SIZE
            if (picture.mode in DEEP) != (image.depth == 16):
                return WRONG_DEPTH
            if image.depth == 16:
                return np.asarray(picture).astype(np.uint16).reshape(-1)
            return np.asarray(picture.convert("L" if image.channels == 1 else "RGB"), dtype=np.uint8).reshape(
                -1
            )
    except (OSError, ValueError, SyntaxError, PIL.Image.DecompressionBombError):
        return "an image that cannot be decoded"


def _to_bytes(values: Values, found: NDArray[Any], image: Image) -> NDArray[np.uint8]:
    """Scale public bounds to 0..255, clipping and rounding to the nearest."""
    low, high = image.bounds or (0.0, 255.0)
    if found.dtype == np.uint8 and (low, high) == (0, 255):
        return found
    clipped = np.clip(found.astype(np.float64), low, high)
    values.count("clipped", clipped != found)
    return np.rint((clipped - low) * (255 / (high - low))).astype(np.uint8)


def _refuse(values: Values, bad: NDArray[np.bool_], rows: NDArray[np.int64], problem: str) -> None:
    """Raise for the first bad image; `rows` says which row of the batch each one is."""
    if bad.any():
        raise RecordError(problem, column=values.name, row=values.first_row + int(rows[bad.argmax()]) + 1)
