"""Membership attacks on synthetic records: is a known record in the data that they come from?

The release and the synthesis are run as the pipeline runs them, again and again, on two neighbouring data
sets; what is scored are the synthetic records alone. The nearest-neighbour attack looks how near they come to
the record (Chen et al. 2020, GAN-Leaks, arXiv 1909.03935), the likelihood attack how likely the record is
under their tables of two columns. Whatever they find is below what is proven of the release: synthetic
records are post-processing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airlock.attack import neighbours
from airlock.attack.neighbours import PLACE, EncodedRecords, Pair
from airlock.attack.targets import Law, Target
from airlock.errors import ParamsError
from airlock.inside import manifest
from airlock.params import Params
from airlock.privacy.plan import Facts
from airlock.records.encoding import Encoded, encode
from airlock.records.schema import Schema
from airlock.storage import load_tensors
from stages import attack_data
from stages.attack_runs import Rehearsal
from stages.open import synthesize

OUT = "data/released/release"
ROWS = 64
NEAREST = 3
CELLS = 4
Score = Callable[[Encoded, NDArray[np.float64], int], float]


def targets(params: Params, *, seed: int, folder: Path) -> list[Target]:
    """Both attacks, on a record among its opposites.

    Raises:
        ParamsError: another mechanism is named: only `inputs` has synthetic records.
    """
    if params.release.mechanism != "inputs":
        params = params.model_copy(
            update={"release": params.release.model_copy(update={"mechanism": "inputs", "options": {}})}
        )
    if params.synthesize.model != "tree":
        raise ParamsError("airlock attack synthetic is for synthesize.model tree: others take minutes a run")
    params, facts = attack_data.of("release", params)
    rehearsal = Rehearsal((OUT,), params, facts, folder, None)
    proven = rehearsal.plans()[0].proven.epsilon
    pair, record, label = _pair(facts, params.release.neighbours)
    run = _Synthesis(rehearsal, schema_of(facts), params, seed)
    return [
        Target(
            Law(
                f"synthetic records, {name}",
                pair.name,
                partial(_scores, score, run, pair, record, label),
                draws=2**12,
                kind="attack",
            ),
            None,
            proven,
            params.release.delta,
        )
        for name, score in (("nearest neighbour", nearest), ("likelihood", likelihood))
    ]


def schema_of(facts: Facts) -> Schema:
    """A schema of numbers from 0 to 1, as the stand-in's records are."""
    return Schema.model_validate(
        {
            "name": "attack",
            "kind": "tabular",
            "confirmed": True,
            "label": {"column": facts.label, "classes": list(facts.labels)},
            "columns": [
                {"name": f"column {place + 1}", "type": "number", "bounds": [0, 1]}
                for place in range(facts.shape[0])
            ],
        }
    )


def _pair(facts: Facts, near: Any) -> tuple[Pair, NDArray[np.float64], int]:
    record, label = np.ones(facts.shape), len(facts.labels) - 1
    others = EncodedRecords(np.zeros((facts.n, *facts.shape)), np.zeros(facts.n, np.int32))
    present = others.with_record(PLACE, record, label)
    absent = others.with_record(PLACE, record, -1) if near == "zero-out" else others
    words = "or a null record" if near == "zero-out" else "or its opposite"
    return neighbours.Pair(f"a record among its opposites, {words}", present, absent), record, label


def _scores(
    score: Score,
    run: _Synthesis,
    pair: Pair,
    record: NDArray[np.float64],
    label: int,
    sampler: Any,
    runs: int,
    present: bool,
) -> NDArray[np.float64]:
    return np.array([score(run(pair.side(present)), record, label) for _ in range(runs)])


class _Synthesis:
    """Synthetic records of a data set, under keys and seeds that no two runs share."""

    def __init__(self, rehearsal: Rehearsal, schema: Schema, params: Params, seed: int) -> None:
        self._rehearsal, self._schema, self._params, self._seed, self._runs = (
            rehearsal,
            schema,
            params.synthesize,
            seed,
            0,
        )

    def __call__(self, data: EncodedRecords) -> Encoded:
        self._runs += 1
        key = hashlib.sha256(f"airlock attack synthetic {self._seed} {self._runs}".encode()).digest()
        if self._rehearsal(data, key) is None:
            raise RuntimeError("the release could not be made")
        folder = self._rehearsal.folder / OUT
        how = self._params.model_copy(update={"rows": ROWS, "seed": int.from_bytes(key[:4], "big")})
        made = synthesize.make(
            how, self._schema, manifest.load(folder).details, load_tensors(folder / "release.safetensors")
        )
        return encode(made, self._schema)


def nearest(made: Encoded, record: NDArray[np.float64], label: int) -> float:
    """How near the nearest few synthetic records are; another label is as far as a whole range."""
    away = np.sqrt(((made.x - record) ** 2).sum(axis=1) + (made.y != label))
    return -float(np.sort(away)[:NEAREST].mean())


def likelihood(made: Encoded, record: NDArray[np.float64], label: int) -> float:
    """Log likelihood of the record by the synthetic records' tables of two columns."""
    columns = np.column_stack([np.minimum((made.x * CELLS).astype(int), CELLS - 1), made.y])
    wanted = [*np.minimum((record * CELLS).astype(int), CELLS - 1).tolist(), label]
    return sum(
        float(np.log((columns[:, i] == wanted[i]) @ (columns[:, j] == wanted[j]).astype(np.int64) + 0.5))
        for i, j in combinations(range(len(wanted)), 2)
    )
