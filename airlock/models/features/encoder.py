"""Feature maps that an owner brings: a frozen ONNX encoder, run on one picture at a time.

`onnx:FILE` in the schema stands for `onnx:FILE@WIDTH:SHA256`, which is the map's name from then on, in release ids,
manifests and models. The file lies in data/encoders and is taken for what its hash says. A picture is given alone, so
that its row cannot depend on another record; before the first record is read the encoder is asked about made-up
pictures twice, in two orders, and refused if it remembers or draws anything. That no private record helped to make
it is the owner's word (schema: `encoder.vouched_by`), and nothing here can check it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.errors import InputError, ReleaseError
from airlock.models.features.rows import Rows, normalise

NAME = re.compile(r"onnx:([A-Za-z0-9][A-Za-z0-9._-]{0,99}\.onnx)@(\d{1,4}):([0-9a-f]{64})")
FOLDER = "data/encoders"
WIDEST = 8192
STEPS = 2.0**19
"""Of the largest feature of a row, before it is scaled: squared norms stay below 2^53."""
TRIED = 5
DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
DRAWING = ("Random", "Bernoulli", "Multinomial")
_place = [Path(FOLDER)]


def look_in(paths: Mapping[str, Path]) -> None:
    """Where this process finds encoders: a stage has a place of its own for the folder that it declared."""
    _place[0] = paths.get(FOLDER, Path(FOLDER))


class Encoder:
    """One encoder for pictures of one shape; the file is opened when the first rows are asked for."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        matched = NAME.fullmatch(name)
        if matched is None or not 1 <= int(matched[2]) <= WIDEST:
            raise InputError(f"'{name}' names no encoder of up to {WIDEST} features")
        self.file, self.width, self.sha256, self.shape = matched[1], int(matched[2]), matched[3], shape

    def ready(self) -> Any:
        """The encoder, tried on made-up pictures.

        Raises:
            InputError, ReleaseError: it is not there, is not the one that was named, or is none that can be used.
        """
        run = session(str(_place[0] / self.file), self.sha256)
        self._try(run)
        return run

    def __call__(self, images: NDArray[np.uint8]) -> Rows:
        """Rows of pictures (n, height, width, channels), each by itself."""
        run = self.ready()
        return np.concatenate([self._row(run, images[place : place + 1]) for place in range(len(images))])

    def _row(self, run: Any, image: NDArray[np.uint8]) -> Rows:
        """Features over the largest of them, in whole steps, scaled to norm 1; zeros where they are not numbers, are
        not as many as was said, or the encoder fails: failing aloud would tell something about the picture.
        """
        try:
            found = self._features(run, image)
        except Exception:  # whatever it is, it is a property of one picture
            return np.zeros((1, self.width))
        largest = np.abs(found).max() if found.shape == (self.width,) else 0.0
        if not np.isfinite(largest) or largest == 0:
            return np.zeros((1, self.width))
        return normalise(np.trunc(found / largest * STEPS)[None])

    def _features(self, run: Any, image: NDArray[np.uint8]) -> NDArray[np.float64]:
        given = (image.astype(np.float32) / np.float32(255)).transpose(0, 3, 1, 2)
        return np.asarray(run(given), np.float64).reshape(-1)

    def _try(self, run: Any) -> None:
        """Made-up pictures in two orders: whoever remembers or draws answers differently.

        Raises:
            ReleaseError: it does, fails, or gives another number of features than was said.
        """
        tried = np.random.default_rng(0).integers(0, 256, (TRIED, *self.shape), dtype=np.uint8)
        try:
            size = self._features(run, tried[:1]).size
        except Exception as error:
            height, width, channels = self.shape
            raise ReleaseError(
                f"{self.file} fails on a made-up picture of {height} x {width} with {channels} channels, as the schema "
                "has them: an encoder takes (n, channels, height, width)"
            ) from error
        if size != self.width:
            raise ReleaseError(
                f"{self.file} gives {size} features and the schema says {self.width}: correct it"
            )
        orders = (range(TRIED), reversed(range(TRIED)), (0, 0, *range(TRIED)))
        seen = [
            {place: self._row(run, tried[place : place + 1]).tobytes() for place in order} for order in orders
        ]
        if any(one[place] != seen[0][place] for one in seen for place in range(TRIED)):
            raise ReleaseError(
                f"{self.file} gives one picture different features at different times: an encoder must not draw or "
                "remember anything"
            )


@lru_cache(maxsize=4)
def session(path: str, sha256: str) -> Any:
    """The encoder of these bytes, ready to run on one thread.

    Raises:
        InputError: the file is missing, is another one, or reaches beyond itself; or onnxruntime is not installed.
    """
    data = _read(Path(path), sha256)
    try:
        import onnx
        import onnxruntime
    except ImportError:
        raise InputError(
            "encoders need onnx and onnxruntime: install airlock with the extra `encoders`"
        ) from None
    name = Path(path).name
    _check(onnx, onnx.load_model_from_string(data), name)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.use_deterministic_compute = True
    options.log_severity_level = 4
    made = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    given = made.get_inputs()[0].name

    def run(pictures: NDArray[np.float32]) -> NDArray[Any]:
        first: NDArray[Any] = made.run(None, {given: pictures})[0]
        return first

    return run


def _read(path: Path, sha256: str) -> bytes:
    try:
        data = path.read_bytes()
    except OSError:
        raise InputError(f"there is no encoder {FOLDER}/{path.name}: put the file there") from None
    if hashlib.sha256(data).hexdigest() != sha256:
        raise InputError(
            f"{FOLDER}/{path.name} is not the file whose SHA-256 the schema names: correct one of them"
        )
    return data


def _check(onnx: Any, model: Any, name: str) -> None:
    """Refuse what reaches for other files, brings operators of its own, or draws.

    Raises:
        InputError: with what was found.
    """
    nodes, tensors = _parts(model.graph)
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data for tensor in tensors):
        raise InputError(f"{name} keeps weights in other files: save it as one file")
    foreign = sorted({node.domain for node in nodes if node.domain not in DOMAINS})
    if foreign or model.functions:
        raise InputError(
            f"{name} uses operators of its own ({', '.join(foreign) or 'functions'}): use ONNX's alone"
        )
    if drawing := sorted({node.op_type for node in nodes if node.op_type.startswith(DRAWING)}):
        raise InputError(f"{name} draws at random ({', '.join(drawing)}): freeze it")
    constants = {one.name for one in model.graph.initializer}
    if len([one for one in model.graph.input if one.name not in constants]) != 1:
        raise InputError(f"{name} takes more than one input: an encoder takes pictures alone")


def _parts(graph: Any) -> tuple[list[Any], list[Any]]:
    """All nodes and tensors of a graph, those of the graphs inside its nodes too."""
    nodes, tensors = list(graph.node), list(graph.initializer)
    tensors += [part for one in graph.sparse_initializer for part in (one.values, one.indices)]
    for node in graph.node:
        for attribute in node.attribute:
            tensors += [attribute.t, *attribute.tensors]
            for one in (attribute.sparse_tensor, *attribute.sparse_tensors):
                tensors += [one.values, one.indices]
            for inner in (attribute.g, *attribute.graphs):
                found = _parts(inner)
                nodes += found[0]
                tensors += found[1]
    return nodes, tensors
