"""The simulated health social network: its shape, its law, and that everybody has the same one."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from airlock.datasets import behaviour, simulation
from airlock.datasets.behaviour import DAILY, WEEKLY, WINDOW
from airlock.datasets.catalog import DATASETS
from airlock.datasets.simulation import ATTRIBUTES, DEGREE, Truth, World, simulate
from airlock.records.schema_file import load_schema

SCHEMAS = Path(__file__).parents[2] / "data/schemas"


@lru_cache
def world() -> World:
    return simulate()


def test_the_shape_is_that_of_the_paper() -> None:
    made = world()
    assert made.attributes.shape == (254, 300, 30)
    assert made.attributes.size // 30 == 76_200
    links = {
        (user, friend)
        for user, friends in enumerate(made.friends.tolist())
        for friend in friends
        if friend >= 0
    }
    assert len(links) == 2 * 1_383
    assert all((friend, user) in links and friend != user for user, friend in links)
    bounds = np.array(list(ATTRIBUTES.values()))
    assert (made.attributes >= bounds[:, 0]).all()
    assert (made.attributes <= bounds[:, 1]).all()
    names = list(ATTRIBUTES)
    messages = [place for place, name in enumerate(names) if name.startswith("messages_")]
    assert made.attributes[:, :, messages].sum() == pytest.approx(2_766, rel=0.02)
    assert made.attributes[:, :, names.index("competitions_joined")].sum() == pytest.approx(11_458, rel=0.02)


def test_everybody_has_the_same_data() -> None:
    made = world()
    numbers = [np.rint(made.attributes * 100), made.status, made.friends, np.rint(made.influence * 1000)]
    digest = hashlib.sha256(b"".join(part.astype("<i4").tobytes() for part in numbers)).hexdigest()
    assert digest == "46437d904d18bc744d8ac953956d68c7ffa26d6346ae17efa05f0f1694b9b88e"
    other = simulate("another seed", users=30, days=20, links=60)
    assert not np.array_equal(other.status, simulate(users=30, days=20, links=60).status)


def test_the_status_follows_its_law() -> None:
    """Among user-days of probability about p, a share of about p has status 1 (five standard deviations)."""
    made = world()
    chance, status = made.probability[:, 1:].ravel(), made.status[:, 1:].ravel()
    for low in np.arange(0, 1, 0.1):
        chosen = (chance >= low) & (chance < low + 0.1)
        expected = chance[chosen].mean()
        assert abs(status[chosen].mean() - expected) < 5 * np.sqrt(expected * (1 - expected) / chosen.sum())


def test_the_ground_truth_is_recovered() -> None:
    """Logistic regression on self-motivation, influence and spur finds the gain of the law in all three;
    strangers have no influence.
    """
    from sklearn.linear_model import LogisticRegression

    made, truth = world(), Truth()
    days = range(simulation.LAGS, 299)
    status = np.concatenate([made.status[:, day + 1] for day in days])

    def parts(seen: World) -> np.ndarray:
        own = np.concatenate([simulation.own(seen.attributes, day, truth) for day in days])
        social = np.concatenate([simulation.social(seen, day) for day in days])
        spur = np.concatenate([simulation.spur(seen.attributes, day) for day in days])
        return np.stack([own, social, spur], axis=1)

    found = LogisticRegression(C=1e6, max_iter=1000).fit(parts(made), status)
    assert found.coef_[0] == pytest.approx(
        [truth.gain, truth.gain * truth.social, truth.gain * truth.spur], rel=0.05
    )
    # The influence of other people's friends says nothing.
    turned = np.roll(np.arange(254), 100)
    strangers = World(
        made.attributes, made.status, made.friends[turned], made.influence[turned], made.probability
    )
    assert (
        abs(LogisticRegression(C=1e6, max_iter=1000).fit(parts(strangers), status).coef_[0, 1])
        < 0.1 * truth.gain * truth.social
    )


@pytest.mark.parametrize("name", [DAILY, WEEKLY])
def test_schemas_are_what_the_simulation_gives(name: str) -> None:
    path = SCHEMAS / f"{name}.yaml"
    assert path.read_text() == behaviour.schema_text(name)
    schema = load_schema(path)
    assert schema.public
    assert "imulated" in schema.description
    assert [column.name for column in schema.columns][-DEGREE:] == list(schema.user.friends.influences)


@pytest.mark.parametrize("name", [DAILY, WEEKLY])
def test_records_keep_within_their_bounds(name: str) -> None:
    made, user = behaviour.divide(name), load_schema(SCHEMAS / f"{name}.yaml").user
    assert [len(made[role].status) for role in ("records", "holdout")] == [
        DATASETS[name].records,
        DATASETS[name].holdout,
    ]
    assert np.bincount(made["records"].users).max() <= user.per_user
    assert (
        np.bincount(made["records"].friends[made["records"].friends >= 0]).max() <= user.friends.appearances
    )
    batch = next(behaviour.batches(made["holdout"]))
    assert set(schema_columns(name)) == set(batch.schema.names)


def schema_columns(name: str) -> list[str]:
    schema = load_schema(SCHEMAS / f"{name}.yaml")
    return [*schema.sources, schema.label.column]


def test_a_record_is_a_window_of_one_user() -> None:
    made, found = world(), behaviour.daily(world())
    assert len(found.status) == 254 * (300 - WINDOW - 1)
    for place in np.random.default_rng(0).integers(0, len(found.status), 50):
        user, day = found.users[place], found.point[place]
        for attribute in range(30):
            assert found.past[place, attribute].tolist() == [
                made.attributes[user, day - lag, attribute] for lag in range(WINDOW, 0, -1)
            ]
        assert np.array_equal(found.present[place], made.attributes[user, day])
        assert np.array_equal(found.influence[place], made.influence[user, day])
        assert found.status[place] == made.status[user, day + 1]
    assert behaviour.divide(DAILY)["records"].point.max() + 1 < behaviour.TRAINED_DAYS


def test_a_week_is_told_from_the_week_before() -> None:
    found, distance = behaviour.weekly(world()), list(ATTRIBUTES).index("distance")
    assert len(found.status) == 9_652
    assert np.array_equal(found.status == 1, found.present[:, distance] > found.past[:, distance, -1])
