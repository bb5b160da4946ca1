"""Models and tensors in files: safetensors and JSON, never pickle; the same values give the same bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import InputError, ParamsError
from airlock.files import check_plain
from airlock.models.model import Model, model_of

TENSORS, DOCUMENT = "model.safetensors", "model.json"


def load_model(folder: Path) -> Model:
    """Read a model folder, and look at every type, shape and range in it.

    Raises:
        InputError: it is not one.
    """
    from safetensors import SafetensorError

    try:
        for name in (DOCUMENT, TENSORS):
            check_plain(folder / name)
        model = model_of(json.loads((folder / DOCUMENT).read_text()), load_tensors(folder / TENSORS))
        model.check()
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{folder} is not a model folder: give the one that `dvc repro train` made (data/model)"
        ) from None
    except (
        ValueError,
        KeyError,
        TypeError,
        IndexError,
        AttributeError,
        ArithmeticError,
        SafetensorError,
        ParamsError,
        RecursionError,
        OSError,
    ):
        raise InputError(
            f"{folder} holds a damaged model: run `dvc repro train` or `dvc pull` again"
        ) from None
    return model


def save_model(model: Model, folder: Path) -> None:
    """Write a model folder."""
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(folder / TENSORS, model.tensors())
    write_json(folder / DOCUMENT, model.describe())


def load_tensors(path: Path) -> dict[str, NDArray[Any]]:
    """Tensors of a safetensors file."""
    from safetensors.numpy import load_file

    return dict(load_file(path))


def save_tensors(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Tensors in the order of their names."""
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(tensors[name]) for name in sorted(tensors)}, path)


def write_json(path: Path, document: Any) -> None:
    """Readable, in the order of the keys."""
    write_text(path, json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file, making its folder if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
