"""Encoders that an owner brings: one picture at a time, nothing drawn, nothing remembered, nothing reached for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from airlock.errors import InputError, ParamsError, ReleaseError, SchemaError
from airlock.models.features import encoder
from airlock.models.features.features import feature_map
from airlock.models.features.rows import LIMIT
from airlock.params import Params
from airlock.records.schema import Schema
from airlock.records.schema_checks import require_complete
from stages.mechanisms import Whole
from stages.release.mechanisms import iterated
from tests.support.sealed_records import KEY, facts, pictures, seal

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
SHAPE, WIDTH = (16, 16, 1), 6


def model(*nodes: Any, more: tuple[Any, ...] = (), domain: str | None = None) -> Any:
    """Pooled convolutions, and further nodes between `pooled` and `features`."""
    make, numbers = onnx.helper, np.random.default_rng(0).standard_normal((WIDTH, 1, 5, 5)).astype(np.float32)
    pooled = [
        make.make_node("Conv", ["pictures", "filters"], ["responses"], kernel_shape=[5, 5]),
        make.make_node("Relu", ["responses"], ["over"]),
        make.make_node("GlobalAveragePool", ["over"], ["means"]),
        make.make_node("Flatten", ["means"], ["pooled"]),
    ]
    last = nodes or (make.make_node("Identity", ["pooled"], ["features"]),)
    given = make.make_tensor_value_info("pictures", onnx.TensorProto.FLOAT, ["n", 1, 16, 16])
    told = make.make_tensor_value_info("features", onnx.TensorProto.FLOAT, None)
    tensors = [onnx.numpy_helper.from_array(numbers, "filters"), *more]
    graph = make.make_graph([*pooled, *last], "encoder", [given], [told], tensors)
    imports = [make.make_opsetid("", 20), *([make.make_opsetid(domain, 1)] if domain else [])]
    return make.make_model(graph, opset_imports=imports, ir_version=10)


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Callable[[Any], str]]:
    """Puts a model where stages find it and gives the map's whole name."""

    def put(made: Any) -> str:
        data = made if isinstance(made, bytes) else made.SerializeToString()
        (tmp_path / "clinic.onnx").write_bytes(data)
        encoder.look_in({encoder.FOLDER: tmp_path})
        return f"onnx:clinic.onnx@{WIDTH}:{hashlib.sha256(data).hexdigest()}"

    yield put
    encoder.look_in({})


def test_a_row_depends_on_its_own_picture_and_is_on_the_grid(keep: Callable[[Any], str]) -> None:
    made = feature_map(keep(model()), "image", SHAPE)
    x, _ = pictures(12, 3, side=16)
    valid = np.ones(12, np.uint8)
    rows = made(x, valid)
    assert rows.shape == (12, WIDTH)
    assert np.array_equal(rows, np.trunc(rows))
    assert 0.99 * LIMIT**2 < (rows * rows).sum(axis=1).min() <= (rows * rows).sum(axis=1).max() <= LIMIT**2
    order = np.random.default_rng(1).permutation(12)
    assert np.array_equal(made(x[order], valid), rows[order])
    assert np.array_equal(made(x[3:4], valid[:1]), rows[3:4])


def node(kind: str, *given: str, **more: Any) -> Any:
    return onnx.helper.make_node(kind, list(given), ["features"], **more)


def outside() -> Any:
    found = onnx.numpy_helper.from_array(np.ones(WIDTH, np.float32), "shift")
    found.ClearField("raw_data")
    found.data_location = onnx.TensorProto.EXTERNAL
    entry = found.external_data.add()
    entry.key, entry.value = "location", "../sealed/train.sealed"
    return found


@pytest.mark.parametrize(
    ("made", "refused"),
    [
        (lambda: model(node("Add", "pooled", "shift"), more=(outside(),)), "keeps weights in other files"),
        (lambda: model(node("Peek", "pooled", domain="mine"), domain="mine"), "operators of its own .mine."),
        (lambda: model(node("RandomNormalLike", "pooled")), "draws at random .RandomNormalLike."),
    ],
)
def test_what_reaches_out_draws_or_brings_operators_is_refused(
    keep: Callable[[Any], str], made: Callable[[], Any], refused: str
) -> None:
    name = keep(made())
    with pytest.raises(InputError, match=refused):
        feature_map(name, "image", SHAPE)(pictures(2, 2, side=16)[0], np.ones(2, np.uint8))


def test_an_encoder_that_remembers_is_refused_before_a_record_is_read(
    keep: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX has no state; should a runtime have some, made-up pictures find it out."""
    calls: list[int] = []

    def remembers(given: Any) -> Any:
        assert not (given == -1).any()
        calls.append(1)
        return np.full((1, WIDTH), 1.0) + np.arange(WIDTH) * len(calls)

    name = keep(model())
    monkeypatch.setattr(encoder, "session", lambda path, sha256: remembers)
    with pytest.raises(ReleaseError, match="must not draw or remember anything"):
        feature_map(name, "image", SHAPE)(np.zeros((1, *SHAPE), np.uint8), np.ones(1, np.uint8))


def test_another_file_none_or_another_width_are_refused(keep: Callable[[Any], str], tmp_path: Path) -> None:
    name, one = keep(model()), (np.zeros((1, *SHAPE), np.uint8), np.ones(1, np.uint8))
    with pytest.raises(ReleaseError, match="gives 6 features and the schema says 7"):
        feature_map(name.replace("@6:", "@7:"), "image", SHAPE)(*one)
    with pytest.raises(InputError, match="is not the file whose SHA-256"):
        feature_map(name[:-2] + "00", "image", SHAPE)(*one)
    (tmp_path / "clinic.onnx").unlink()
    encoder.session.cache_clear()
    with pytest.raises(InputError, match="there is no encoder data/encoders/clinic.onnx"):
        feature_map(name, "image", SHAPE)(*one)


def test_features_that_are_not_numbers_are_a_row_of_zeros(keep: Callable[[Any], str]) -> None:
    """Of the one picture on which the arithmetic fails; failing aloud would tell something about it."""
    made = feature_map(keep(model(node("Log", "pooled"))), "image", SHAPE)
    x = pictures(3, 3, side=16)[0]
    x[1] = 0
    rows = made(x, np.ones(3, np.uint8))
    assert not rows[1].any()
    assert rows[0].any()


@pytest.mark.parametrize("answer", ["raises", "another width", "words"])
def test_a_picture_on_which_the_encoder_fails_is_a_row_of_zeros(
    keep: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """As if it were null: a stage that ended there would tell that such a picture is among the records."""

    def fails_on_black(given: Any) -> Any:
        if given.any():
            return given.reshape(1, -1)[:, :WIDTH] + 1
        if answer == "raises":
            raise RuntimeError("no such shape")
        return np.ones((1, WIDTH + 1)) if answer == "another width" else np.full((1, WIDTH), "none")

    name = keep(model())
    monkeypatch.setattr(encoder, "session", lambda path, sha256: fails_on_black)
    x = pictures(3, 3, side=16)[0]
    x[1] = 0
    rows = feature_map(name, "image", SHAPE)(x, np.ones(3, np.uint8))
    assert rows.shape == (3, WIDTH)
    assert not rows[1].any()
    assert rows[0].any()


def test_a_release_through_an_encoder_names_its_hash(keep: Callable[[Any], str], tmp_path: Path) -> None:
    x, y = pictures(12, 3, side=16)
    name = keep(model())
    known = facts(x, 3, features=name)
    params = Params.model_validate(
        {"release": {"mechanism": "coefficients-iterated", "features": "onnx:clinic.onnx"}}
    )
    plan = Whole(iterated).plan(params, known)
    assert plan.parameters["features"] == name
    tensors, _ = Whole(iterated).make(params, known, seal(tmp_path, x, y), key=KEY, release_id="id")
    assert tensors["head"].shape == (WIDTH, 3)
    with pytest.raises(ParamsError, match="is not the encoder that the schema declares"):
        Whole(iterated).plan(params, facts(x, 3))
    cluster = params.model_copy(update={"release": params.release.model_copy(update={"engine": "dask"})})
    with pytest.raises(ParamsError, match="does not serve 'onnx:FILE': use local"):
        iterated.plan(cluster, known)


def test_a_schema_says_whose_word_it_is() -> None:
    document: dict[str, Any] = {
        "name": "scans",
        "kind": "image",
        "label": {"column": "finding", "classes": ["no", "yes"]},
        "image": {"height": 16, "width": 16, "column": "scan", "bounds": [0, 255]},
        "features": "onnx:clinic.onnx",
    }
    with pytest.raises(SchemaError, match="needs `encoder` beside it: sha256, width, seen and vouched_by"):
        require_complete(Schema.model_validate(document), "scans.yaml")
    word = {
        "sha256": "0" * 64,
        "width": 6,
        "seen": "generated pictures",
        "vouched_by": "the clinic's physicist",
    }
    schema = Schema.model_validate({**document, "encoder": word})
    require_complete(schema, "scans.yaml")
    assert schema.map == f"onnx:clinic.onnx@6:{'0' * 64}"
    other = Schema.model_validate({**document, "encoder": {**word, "vouched_by": "somebody else"}})
    assert schema.sha256 != other.sha256
