"""PyTorch without pickle: a folder with the tensors in safetensors, the program in JSON, and one file of
Python that needs only torch and safetensors.
"""

from __future__ import annotations

from pathlib import Path

from airlock.export.program import SHORTENED_LIMIT, program_of
from airlock.models.features.rows import LIMIT
from airlock.models.model import Model
from airlock.records.schema import Schema
from airlock.storage import save_tensors, write_json, write_text

MODULE = '''\
"""A model made by Airlock, for PyTorch. Needs torch and safetensors, and nothing of Airlock.

    from model import load
    network = load()
    logits = network(records)          # float64 (n, columns), encoded as `network.columns` says
"""

import json
from hashlib import sha256
from pathlib import Path

import torch
from safetensors.torch import load_file

HERE = Path(__file__).parent


class Network(torch.nn.Module):
    """Encoded records to logits; `encode` makes encoded records from columns of the file."""

    def __init__(self, document, tensors):
        super().__init__()
        self.classes, self.columns, self.program = document["classes"], document["columns"], document["program"]
        self.limit, self.shorter = document["limit"], document["shorter"]
        for name, tensor in tensors.items():
            self.register_buffer(name.replace(".", "_"), tensor)

    def encode(self, records):
        """A dict of columns (lists) as a tensor: numbers and dates in days are scaled by their bounds,
        categories become 0 and 1.
        """
        parts = []
        for column in self.columns:
            values = records[column["name"]]
            if column.get("buckets"):
                gone = [value is None or str(value) == "" for value in values]
                digests = [sha256(str(value).encode()).digest()[:8] for value in values]
                places = range(column["buckets"])
                hashed = [int.from_bytes(digest, "big") % column["buckets"] for digest in digests]
                part = [[float(place == found and not empty) for place in places] for found, empty in zip(hashed, gone)]
                missing = [[float(empty)] for empty in gone]
            elif column["categories"] is not None:
                part = [[float(str(value) == name) for name in column["categories"]] for value in values]
                missing = [[float(str(value) not in column["categories"])] for value in values]
            else:
                low, high = column["bounds"]
                missing = [[float(value is None or value != value)] for value in values]
                part = [
                    [0.5 if gone[0] else (min(max(float(value), low), high) - low) / (high - low)]
                    for value, gone in zip(values, missing)
                ]
            parts.append(torch.tensor(part, dtype=torch.float64))
            if column["missing"] == "impute":
                parts.append(torch.tensor(missing, dtype=torch.float64))
        return torch.cat(parts, dim=1)

    def forward(self, rows):
        for place, name in enumerate(self.program):
            given = lambda key: getattr(self, f"step{place:02d}_{key}")
            if name == "affine":
                rows = rows * given("scale") + given("offset")
            elif name == "sqrt":
                rows = rows.sqrt()
            elif name == "trunc":
                rows = rows.trunc()
            elif name == "product":
                rows = rows @ given("matrix")
            elif name == "rectify":
                rows = rows.clamp(min=0)
            elif name == "append":
                rows = torch.cat([rows, given("value").expand(len(rows), 1)], dim=1)
            elif name == "spread":
                rows = rows[:, given("source").long()]
                tents = (1 - (rows * given("scale") - given("point")).abs()).clamp(min=0)
                rows = torch.where(given("number").bool(), 2 * rows.sqrt() - 1, tents)
            elif name == "waves":
                table = given("table")
                phases = (rows @ given("frequencies")).floor() + given("offsets")
                waves = table[phases.long() % len(table)]
                beside = getattr(self, f"step{place:02d}_beside", None)
                rows = waves if beside is None else torch.cat([waves, rows * beside], dim=1)
            else:
                rows = self._scaled(rows, only_long=name == "shorten")
        return rows

    def _scaled(self, rows, only_long):
        squares = (rows * rows).sum(dim=1, keepdim=True)
        reach = self.shorter if only_long else self.limit
        scaled = (rows * (reach / squares.clamp(min=1).sqrt())).trunc()
        return torch.where(squares > self.limit**2, scaled, rows) if only_long else scaled

    def predict_proba(self, records):
        return self(self.encode(records)).softmax(dim=1)

    def predict(self, records):
        return [self.classes[place] for place in self(self.encode(records)).argmax(dim=1)]


def load(folder=HERE):
    document = json.loads((Path(folder) / "program.json").read_text())
    return Network(document, load_file(Path(folder) / "program.safetensors")).eval()
'''


def write_torch(model: Model, folder: Path) -> None:
    """Write model.py, program.json and program.safetensors.

    Raises:
        InputError: the model cannot be written in this form.
    """
    schema, program = Schema.model_validate(model.document["schema"]), program_of(model)
    tensors = {
        f"step{place:02d}.{key}": value
        for place, operation in enumerate(program)
        for key, value in operation.tensors.items()
    }
    columns = [
        column.model_dump(mode="json", include={"name", "bounds", "categories", "missing", "buckets"})
        for column in schema.columns
    ]
    folder.mkdir(parents=True, exist_ok=True)
    save_tensors(folder / "program.safetensors", tensors)
    write_json(
        folder / "program.json",
        {
            "classes": list(model.labels),
            "columns": columns,
            "program": [operation.name for operation in program],
            "limit": float(LIMIT),
            "shorter": SHORTENED_LIMIT,
        },
    )
    write_text(folder / "model.py", MODULE)
