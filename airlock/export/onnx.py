"""ONNX: one input a column, as it stands in the file; probabilities and the index of the likeliest class come
out.

Numbers are double (NaN where missing), dates are days since 1970, categories are strings. Everything is
computed in double, with the truncations of the model, so that figures agree with `airlock predict` to
rounding.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from airlock.errors import InputError
from airlock.export.program import SHORTENED_LIMIT, Operation, program_of, schema_of
from airlock.models.features.rows import LIMIT
from airlock.models.features.tables import PHASES
from airlock.models.model import Model
from airlock.records.schema import Column

OPSET = 19  # the first that compares strings
MISSING_PACKAGE = "--onnx needs the package 'onnx': install it with `pip install 'airlock-pipeline[onnx]'`"


def write_onnx(model: Model, path: Path, *, notes: dict[str, str] | None = None) -> None:
    """Write model.onnx.

    Raises:
        InputError: the model cannot be written in this form, or the package is missing.
    """
    try:
        import onnx
    except ImportError:
        raise InputError(MISSING_PACKAGE) from None
    schema, graph = schema_of(model), OnnxGraph()
    records = graph.add(
        "Concat", [part for column in schema.columns for part in _encoded(graph, column)], axis=1
    )
    rows = records
    for operation in program_of(model):
        rows = _apply(graph, operation, rows)
    graph.add("Identity", [rows], name="logits")
    graph.add("Softmax", [rows], name="probabilities", axis=1)
    graph.add("ArgMax", [rows], name="class", axis=1, keepdims=0)
    made = onnx.helper.make_model(
        graph.finish(len(model.labels)), opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=9
    )
    onnx.helper.set_model_props(made, {"classes": "\n".join(model.labels), **(notes or {})})
    onnx.checker.check_model(made)
    path.write_bytes(made.SerializeToString(deterministic=True))


class OnnxGraph:
    """Nodes, constants and inputs of an ONNX graph, with names made up as they come."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.inputs: list[Any] = []

    def add(self, kind: str, inputs: list[str], *, name: str | None = None, **attributes: Any) -> str:
        """A node with one output, and that output's name."""
        import onnx

        out = name or f"n{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(kind, inputs, [out], **attributes))
        return out

    def constant(self, value: Any) -> str:
        """A tensor that is part of the model."""
        import onnx

        name = f"k{len(self.constants)}"
        array = np.asarray(value)
        self.constants.append(
            onnx.numpy_helper.from_array(
                array if array.dtype == object else np.ascontiguousarray(array), name
            )
        )
        return name

    def input(self, name: str, text: bool) -> str:
        """A column of the file."""
        import onnx

        kind = onnx.TensorProto.STRING if text else onnx.TensorProto.DOUBLE
        self.inputs.append(onnx.helper.make_tensor_value_info(name, kind, ["n", 1]))
        return name

    def finish(self, classes: int) -> Any:
        import onnx

        double, integer = onnx.TensorProto.DOUBLE, onnx.TensorProto.INT64
        outputs = [
            onnx.helper.make_tensor_value_info("class", integer, ["n"]),
            onnx.helper.make_tensor_value_info("probabilities", double, ["n", classes]),
            onnx.helper.make_tensor_value_info("logits", double, ["n", classes]),
        ]
        return onnx.helper.make_graph(self.nodes, "airlock", self.inputs, outputs, self.constants)


def _encoded(graph: OnnxGraph, column: Column) -> list[str]:
    """The encoded columns of one column of the file
    (records/encoding.py says the same for Airlock itself).
    """
    if column.type == "category":
        text = graph.input(column.name, True)
        known = graph.constant(np.array([column.categories], dtype=object))
        one_hot = _double(graph, graph.add("Equal", [text, known]))
        if column.missing != "impute":
            return [one_hot]
        found = graph.add("ReduceSum", [one_hot, graph.constant(np.array([1]))], keepdims=1)
        return [one_hot, graph.add("Sub", [graph.constant(np.array([[1.0]])), found])]
    assert column.bounds is not None
    low, high = column.bounds
    value = graph.input(column.name, False)
    missing = graph.add("IsNaN", [value])
    present = graph.add("Where", [missing, graph.constant(np.array([[(low + high) / 2]])), value])
    inside = graph.add(
        "Min", [graph.add("Max", [present, graph.constant(np.array(low))]), graph.constant(np.array(high))]
    )
    shifted = graph.add("Sub", [inside, graph.constant(np.array(low))])
    scaled = graph.add("Div", [shifted, graph.constant(np.array(high - low))])
    return [scaled, _double(graph, missing)] if column.missing == "impute" else [scaled]


def _double(graph: OnnxGraph, name: str) -> str:
    import onnx

    return graph.add("Cast", [name], to=onnx.TensorProto.DOUBLE)


def _apply(graph: OnnxGraph, operation: Operation, rows: str) -> str:
    name, tensors = operation.name, operation.tensors
    given = {key: graph.constant(value) for key, value in tensors.items() if key not in ("source", "number")}
    if name == "affine":
        return graph.add("Add", [graph.add("Mul", [rows, given["scale"]]), given["offset"]])
    if name == "sqrt":
        return graph.add("Sqrt", [rows])
    if name == "trunc":
        return _trunc(graph, rows)
    if name == "product":
        return graph.add("MatMul", [rows, given["matrix"]])
    if name == "rectify":
        return graph.add("Max", [rows, graph.constant(np.array(0.0))])
    if name == "spread":
        return _spread(graph, operation, given, rows)
    if name == "waves":
        return _waves(graph, operation, given, rows)
    if name == "append":
        first = graph.add(
            "Slice",
            [
                rows,
                graph.constant(np.array([0])),
                graph.constant(np.array([1])),
                graph.constant(np.array([1])),
            ],
        )
        zero = graph.add("Mul", [first, graph.constant(np.array(0.0))])
        return graph.add("Concat", [rows, graph.add("Add", [zero, given["value"]])], axis=1)
    squares = graph.add(
        "ReduceSum", [graph.add("Mul", [rows, rows]), graph.constant(np.array([1]))], keepdims=1
    )
    norms = graph.add("Sqrt", [graph.add("Max", [squares, graph.constant(np.array(1.0))])])
    reach = SHORTENED_LIMIT if name == "shorten" else float(LIMIT)
    scaled = _trunc(
        graph, graph.add("Mul", [rows, graph.add("Div", [graph.constant(np.array(reach)), norms])])
    )
    if name == "normalise":
        return scaled
    long = graph.add("Greater", [squares, graph.constant(np.array(float(LIMIT) ** 2))])
    return graph.add("Where", [long, scaled, rows])


def _spread(graph: OnnxGraph, operation: Operation, given: dict[str, str], rows: str) -> str:
    source = graph.constant(operation.tensors["source"].astype(np.int64))
    found = graph.add("Gather", [rows, source], axis=1)
    one, zero, two = (graph.constant(np.array(value)) for value in (1.0, 0.0, 2.0))
    numbers = graph.add("Sub", [graph.add("Mul", [graph.add("Sqrt", [found]), two]), one])
    away = graph.add("Abs", [graph.add("Sub", [graph.add("Mul", [found, given["scale"]]), given["point"]])])
    tents = graph.add("Max", [graph.add("Sub", [one, away]), zero])
    mask = graph.constant(operation.tensors["number"].astype(bool))
    return graph.add("Where", [mask, numbers, tents])


def _waves(graph: OnnxGraph, operation: Operation, given: dict[str, str], rows: str) -> str:
    import onnx

    turns = graph.add("Floor", [graph.add("MatMul", [rows, given["frequencies"]])])
    phases = graph.add("Add", [turns, given["offsets"]])
    turn = graph.constant(np.array(float(PHASES)))
    whole = graph.add("Mul", [graph.add("Floor", [graph.add("Div", [phases, turn])]), turn])
    places = graph.add("Cast", [graph.add("Sub", [phases, whole])], to=onnx.TensorProto.INT64)
    waves = graph.add("Gather", [given["table"], places], axis=0)
    if "beside" not in operation.tensors:
        return waves
    return graph.add("Concat", [waves, graph.add("Mul", [rows, given["beside"]])], axis=1)


def _trunc(graph: OnnxGraph, rows: str) -> str:
    return graph.add("Mul", [graph.add("Sign", [rows]), graph.add("Floor", [graph.add("Abs", [rows])])])
