"""Synthetic records from a release of `inputs`, in the schema's own columns and types, without a record in
sight.

`airlock synthesize` runs it; as a stage of one's own it is `meta: {zone: open, module:
stages.open.synthesize}`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from airlock.errors import InputError, ReleaseError
from airlock.inside import manifest
from airlock.inside.room import Room
from airlock.models.distribution import distribution_of
from airlock.models.shares import shares_of
from airlock.models.synthesis import draw_bins, drawn_of
from airlock.params import SynthesizeParams
from airlock.records.generation import check_offered, records_of, write
from airlock.records.schema import Schema
from airlock.records.schema_file import load_schema
from airlock.storage import load_tensors

RELEASE, OUT = "data/released/release", "data/open/synthetic"
NAME = "synthetic"


def main(room: Room) -> None:
    """Write synthetic.parquet, synthetic.csv, and synthetic.json that says where they come from."""
    schema = load_schema(room.path(f"data/schemas/{room.params.dataset}.yaml"))
    folder = room.path(RELEASE)
    release = manifest.load(folder)
    check_offered(schema)
    check_release(release, schema)
    tensors = load_tensors(folder / "release.safetensors")
    made = make(room.params.synthesize, schema, release.details, tensors)
    write(made, room.path(OUT), NAME, schema, marks_of(release, room.params.synthesize, schema))


def answer(room: Room) -> bool:
    """The same, asked by `airlock synthesize`."""
    main(room)
    return True


def make(params: SynthesizeParams, schema: Schema, details: Any, tensors: Any) -> Any:
    """A table of synthetic records; the same arguments give the same records."""
    known = distribution_of(details, tensors)
    rows = known.n if params.rows == "auto" else params.rows
    random = np.random.default_rng(params.seed)
    shares = shares_of(known)
    if params.model == "mbi":
        from airlock.models import graphical

        bins = graphical.draw_bins(known, shares, rows, params.seed)
    else:
        bins = draw_bins(shares, rows, random)
    return records_of(schema, *drawn_of(known, shares, bins, random), random)


def check_release(release: manifest.Manifest, schema: Schema) -> None:
    """Refuse a release of something else.

    Raises:
        ReleaseError: there is none, or it is of another mechanism.
        InputError: it was made for another schema.
    """
    if not release.applies or release.mechanism != "inputs":
        raise ReleaseError(
            f"synthetic records need a release of 'inputs', and this is one of '{release.mechanism}': set "
            "release.mechanism to inputs in params.yaml and run `dvc repro release`"
        )
    if release.details["data"]["schema"] != schema.sha256:
        raise InputError(
            f"the release was made for another schema than '{schema.name}': run `dvc repro release`"
        )


def marks_of(release: manifest.Manifest, params: SynthesizeParams, schema: Schema) -> dict[str, Any]:
    """What every file says of itself."""
    return {
        "kind": "synthetic",
        "label": "open",
        "schema": schema.name,
        "schema_sha256": schema.sha256,
        "release": release.release_id,
        "mechanism": release.mechanism,
        "epsilon": release.proven.epsilon,
        "delta": release.proven.delta,
        "unit": release.unit,
        "neighbours": release.neighbours,
        "argument": release.proven.argument,
        "seed": params.seed,
        "model": params.model,
    }
