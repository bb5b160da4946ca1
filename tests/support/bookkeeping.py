"""Short words for tests of the ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from airlock.ledger import Ledger, Reservation
from airlock.ledger.store import Store
from airlock.privacy import calibration


def name(text: str) -> str:
    """A release id or a manifest hash."""
    return sha256(text.encode()).hexdigest()


def gaussian(epsilon: float, delta: float = 1e-5, share: float = 1.0) -> dict[str, Any]:
    """The event of a Gaussian release priced at (epsilon, delta), or of a share of it."""
    (multiplier,) = calibration.split(calibration.gaussian_mu(epsilon, delta), [share])
    return {"kind": "gaussian", "noise_multiplier": multiplier}


def reserve(
    ledger: Ledger, release: str, epsilon: float = 1.0, *, population: str = "clinic", **terms: Any
) -> Reservation:
    """Reserve a Gaussian release of `epsilon`, unless `terms` say otherwise."""
    usual = {
        "mechanism": "coefficients",
        "neighbours": "zero-out",
        "unit": "record",
        "passes": 1,
        "public": False,
    }
    if "event" not in terms:
        terms["event"] = gaussian(epsilon)
    return ledger.reserve(population, release_id=name(release), **{**usual, **terms})


@contextmanager
def tampering(url: str) -> Iterator[Connection]:
    """A connection of somebody who owns the database and took the seat belt off."""
    store = Store(url)
    drop = {
        "sqlite": [f"DROP TRIGGER IF EXISTS ledger_no_{word}" for word in ("update", "delete", "replace")],
        "postgresql": ["DROP TRIGGER IF EXISTS ledger_no_change ON ledger_entries"],
    }
    with store.writing() as connection:
        for statement in drop[store.kind]:
            connection.execute(sa.text(statement))
        yield connection
