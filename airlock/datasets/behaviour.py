"""Windows of the simulated health social network as records: a user's attributes over the last days, the
friends' influence, a status.

    behaviour-simulated           a day: does the user exercise more tomorrow? Records to day 239, the public holdout
                                  is the days after
    behaviour-weekly-simulated    a week: did the user walk farther than the week before? One record in ten is the
                                  public holdout

`python -m airlock.datasets.behaviour` writes their schemas into data/schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from airlock.datasets.simulation import (
    ATTRIBUTES,
    DAYS,
    DEGREE,
    SEED,
    USERS,
    Chances,
    Floats,
    Integers,
    World,
    simulate,
)

if TYPE_CHECKING:
    import pyarrow as pa

DAILY, WEEKLY = "behaviour-simulated", "behaviour-weekly-simulated"
WINDOW = 4
"""N of the paper: how many past time points stand in a record beside the present one."""
TRAINED_DAYS = 240
WEEK = 7
ROWS = 4096
TITLES = {
    DAILY: "Simulated: 254 users, 300 days, 30 attributes, 1,383 "
    "friend links; does a user exercise more tomorrow?",
    WEEKLY: "Simulated: the same network in weeks; did a user walk farther than the week before?",
}


@dataclass(frozen=True)
class Windows:
    """Records in the order of time.

    Attributes:
        users: whose record it is.
        past: (n, 30, WINDOW), the time points before the present one, the oldest first.
        present: (n, 30).
        friends: (n, DEGREE), -1 where a slot is empty.
        influence: (n, DEGREE), psi of each friend.
        status: 0 or 1, what is to be told.
        probability: of status 1 by the law of the simulation.
        point: the number of the present time point.
    """

    users: Integers
    past: Floats
    present: Floats
    friends: Integers
    influence: Floats
    status: Integers
    probability: Floats
    point: Integers

    def only(self, chosen: np.ndarray) -> Windows:
        """Some of the records."""
        return Windows(**{name: getattr(self, name)[chosen] for name in Windows.__dataclass_fields__})


def daily(world: World) -> Windows:
    """Every user and day that has WINDOW days before it and one after it; the status is tomorrow's."""
    return _windows(world, range(WINDOW, world.status.shape[1] - 1), ahead=1)


def weekly(world: World) -> Windows:
    """Every user and week with WINDOW weeks before it; the status is the week's own: did the user walk
    farther than the week before?
    """
    weeks = world.status.shape[1] // WEEK
    mean = {
        name: getattr(world, name)[:, : weeks * WEEK].reshape(len(world.status), weeks, WEEK, -1).mean(axis=2)
        for name in ("attributes", "influence")
    }
    attributes = np.round(mean["attributes"], 2)
    distance = attributes[:, :, list(ATTRIBUTES).index("distance")]
    status = np.zeros(distance.shape, np.int64)
    status[:, 1:] = distance[:, 1:] > distance[:, :-1]
    short = World(
        attributes, status, world.friends, np.round(mean["influence"], 3), status.astype(np.float64)
    )
    return _windows(short, range(WINDOW, weeks), ahead=0)


def _windows(world: World, points: range, *, ahead: int) -> Windows:
    users = np.arange(len(world.status))
    past = np.stack([np.moveaxis(world.attributes[:, point - WINDOW : point], 1, 2) for point in points])
    now, then = np.array(points), np.array(points) + ahead
    return Windows(
        np.tile(users, len(now)),
        past.reshape(-1, *past.shape[2:]),
        np.moveaxis(world.attributes[:, now], 1, 0).reshape(-1, world.attributes.shape[2]),
        np.tile(world.friends, (len(now), 1)),
        np.moveaxis(world.influence[:, now], 1, 0).reshape(-1, world.influence.shape[2]),
        world.status[:, then].T.reshape(-1),
        world.probability[:, then].T.reshape(-1),
        np.repeat(now, len(users)),
    )


def divide(name: str, seed: str = SEED) -> dict[str, Windows]:
    """A data set's records and public holdout."""
    world = simulate(seed)
    if name == DAILY:
        found = daily(world)
        held = found.point + 1 >= TRAINED_DAYS
    else:
        found = weekly(world)
        ranks = np.argsort(
            np.argsort(Chances(seed).uniform("holdout", len(found.status)), kind="stable"), kind="stable"
        )
        held = ranks < len(found.status) // 10
    return {"records": found.only(~held), "holdout": found.only(held)}


def columns() -> list[tuple[str, tuple[float, float]]]:
    """Name and bounds of every column in the order of the records: the window attribute by attribute, the
    present, the influences.
    """
    names = [(f"{name}_{lag}", bounds) for name, bounds in ATTRIBUTES.items() for lag in range(WINDOW, 0, -1)]
    names += [(f"{name}_0", bounds) for name, bounds in ATTRIBUTES.items()]
    return names + [(f"influence_{slot}", (0.0, 1.0)) for slot in range(1, DEGREE + 1)]


def batches(found: Windows) -> Iterator[pa.RecordBatch]:
    """As Arrow, a few thousand records at a time."""
    import pyarrow as pa

    values = np.concatenate(
        [found.past.reshape(len(found.status), -1), found.present, found.influence], axis=1
    ).astype(np.float32)
    people = pa.array([*(f"user {number + 1}" for number in range(USERS)), None])
    for start in range(0, len(values), ROWS):
        part = slice(start, start + ROWS)
        table = {"user": people.take(pa.array(found.users[part]))}
        table |= {name: pa.array(values[part, place]) for place, (name, _) in enumerate(columns())}
        table |= {
            f"friend_{slot + 1}": people.take(pa.array(found.friends[part, slot] % (USERS + 1)))
            for slot in range(DEGREE)
        }
        yield pa.RecordBatch.from_pydict(
            {**table, "status": pa.array(["less", "more"]).take(pa.array(found.status[part]))}
        )


def schema_text(name: str) -> str:
    """The schema of a data set, as it stands in data/schemas."""
    points = TRAINED_DAYS - WINDOW - 1 if name == DAILY else DAYS // WEEK - WINDOW
    lines = [
        "# SIMULATED (airlock/datasets/simulation.py, docs/behaviour.md); made by `python -m "
        "airlock.datasets.behaviour`.",
        f"name: {name}",
        f"description: {TITLES[name]!r}",
        "kind: tabular",
        "public: true",
        "confirmed: true",
        "label: {column: status, classes: [less, more]}",
        "user:",
        "  column: user",
        f"  per_user: {points}",
        f'  friends: {{name: "friend_{{}}", influence: "influence_{{}}", slots: {DEGREE}, appearances: '
        f"{points * DEGREE}}}",
        "columns:",
    ]
    for column, (low, high) in columns():
        lines.append(
            f"- {{name: {column}, type: number, bounds: [{low:g}, {high:g}], why: the simulator's own range}}"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write both schemas."""
    for name in TITLES:
        (Path(__file__).parents[2] / f"data/schemas/{name}.yaml").write_text(schema_text(name))


if __name__ == "__main__":
    main()
