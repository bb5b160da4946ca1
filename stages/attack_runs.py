"""The release stages on made-up records, as the pipeline runs them: sealed files, the stage's own `main`, the
files it writes.

For attacks. What is attacked is then everything that shapes the released bytes: sealing, feature maps, sums,
sensitivities, noise, files.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from airlock.attack.neighbours import EncodedRecords
from airlock.inside.manifest import NAME as MANIFEST
from airlock.inside.room import Room
from airlock.inside.sealed import FILES, SealedWriter
from airlock.models.model import Model
from airlock.params import Params
from airlock.privacy.plan import Facts, Plan
from airlock.records.encoding import Encoded, pack
from airlock.storage import load_tensors, save_model
from stages.release import passes

SEALED, MODEL = "data/sealed", "data/model"
MODULES = {
    "data/released/relevance": "stages.release.relevance",
    "data/released/release": "stages.release.perturb",
    "data/released/evaluation": "stages.release.evaluate_private",
}
SEAL_KEY = bytes(range(32))
CHUNKS = 2
"""Sealed chunks: more than one, however small the data set."""


@dataclass(frozen=True)
class Rehearsal:
    """Stages to run one after another on the same records; what all of them release is seen together.

    Attributes:
        outs: keys of MODULES, in the order of the pipeline.
        folder: empty, on tmpfs where there is one.
        model: what a private evaluation judges.
    """

    outs: tuple[str, ...]
    params: Params
    facts: Facts
    folder: Path
    model: Model | None = None

    def plans(self) -> list[Plan]:
        """What the broker would charge, one for each out."""
        return [
            importlib.import_module(MODULES[out]).plans(self.params, self.facts)[out] for out in self.outs
        ]

    def __call__(self, data: EncodedRecords, key: bytes) -> dict[str, Any] | None:
        """Seal the records, run the stages, read what they released."""
        if self.model:
            save_model(self.model, self.folder / MODEL)
        sealed = self._seal(data)
        # Any number of workers gives the same bits; a pool of threads for every pass over six records takes
        # most of a run's time.
        passes.bounded_map = _plain_map
        released: dict[str, Any] = {}
        for out in self.outs:
            shutil.rmtree(self.folder / out, ignore_errors=True)
            try:
                importlib.import_module(MODULES[out]).main(self._room(out, sealed, key))
            except Exception:
                return None
            released |= {f"{out} {name}": value for name, value in read(self.folder / out).items()}
        return released

    def _seal(self, data: EncodedRecords) -> Path:
        """The folder of the sealed records, for training and for
        holdout alike; each data set is sealed once.
        """
        folder = self.folder / hashlib.sha256(data.x.tobytes() + data.y.tobytes()).hexdigest()
        if not folder.exists():
            folder.mkdir(parents=True)
            for name in FILES.values():
                with SealedWriter(folder / name, SEAL_KEY, rows=-(-len(data.y) // CHUNKS)) as writer:
                    writer.write(pack(Encoded(data.x, data.y, data.valid), user=np.arange(len(data.y))))
        return folder

    def _room(self, out: str, sealed: Path, key: bytes) -> Room:
        keys = {f"noise:{name}": key for name in self.outs} | {f"seal:{role}": SEAL_KEY for role in FILES}
        paths = {SEALED: sealed} | {path: self.folder / path for path in (MODEL, *MODULES)}
        facts = {"facts": asdict(self.facts), "releases": {out: {"id": f"attack {out}"}}}
        return Room(out.rpartition("/")[2], self.params, facts, keys, paths)


def _plain_map(
    function: Callable[[Any], Any], items: Iterable[Any], workers: int | None = None
) -> Iterator[Any]:
    return map(function, items)


def read(folder: Path) -> dict[str, Any]:
    """Every released number: tensors, figures, and what release.json says about them."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".safetensors":
            found |= {f"{path.name} {name}": value for name, value in load_tensors(path).items()}
        elif path.suffix == ".json":
            document = json.loads(path.read_text())
            # Hashes of the files follow from the files.
            details = document["details"] if path.name == MANIFEST else document
            found[path.name] = np.array(list(_numbers(details)), dtype=np.float64)
    return found


def _numbers(document: Any) -> Any:
    if isinstance(document, Mapping):
        for key in sorted(document):
            yield from _numbers(document[key])
    elif isinstance(document, list):
        for one in document:
            yield from _numbers(one)
    elif document is None:
        yield 0.0  # a figure that noise left undefined: it keeps its place
    elif isinstance(document, (int, float)):
        yield float(document) if math.isfinite(document) else 0.0
