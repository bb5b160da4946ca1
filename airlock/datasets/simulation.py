"""A simulated health social network in the shape of YesiWell, whose data are not public (Phan, Wu and Dou,
arXiv 1706.08839v2, Sec. 4.1).

254 users, 300 days, 30 attributes, 1,383 friend links, and in every user and day a status: does the user
exercise more (1) or less (0)? The law of the status is known, and it is a function of what is recorded:

    P(status of u on day t + 1 is 1) = sigmoid(gain (self(u, t) + social(u, t) + spur(u, t)))
    self    = sum over the last five days, weights 2^-lag, of goals achieved, less distance walked, plus slope of the
            wellness score
    social  = mean over friends v of the influence psi(v, u, t) = tie(u, v) * how active v was lately
    spur    = a competition wakes those who exercised little, and tires those who exercised much

Nothing else carries over from one day to the next except what the attributes show. Every number comes from a
public seed through SHAKE-256, so everybody has the same data. All results on them are results on simulated
data.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

USERS, DAYS, LINKS = 254, 300, 1_383
DEGREE = 16
"""No user has more friends: the network's own limit, and public."""
SEED = "airlock behaviour 1"
LAGS, CIRCLES = 5, 40

BEHAVIOURS = {
    "competitions_joined": (0.0, 5.0),
    "exercising_days": (0.0, 7.0),
    "goals_set": (0.0, 5.0),
    "goals_achieved": (0.0, 5.0),
    "distance": (0.0, 20.0),
    "speed": (0.0, 12.0),
}
MESSAGES = (
    "encouragement",
    "fitness",
    "followup",
    "competition",
    "games",
    "personal",
    "study_protocol",
    "progress_report",
    "technique",
    "social_network",
    "meetups",
    "goal",
    "wellness_meter",
    "feedback",
    "heckling",
    "explanation",
    "invitation",
    "notice",
    "technical_fitness",
    "physical",
)
MEASURES = {
    "wellness_score": (0.0, 100.0),
    "bmi": (20.0, 60.0),
    "bmi_slope": (-1.0, 1.0),
    "wellness_slope": (-5.0, 5.0),
}
ATTRIBUTES = {**BEHAVIOURS, **{f"messages_{kind}": (0.0, 3.0) for kind in MESSAGES}, **MEASURES}
"""Name and bounds of each attribute."""


@dataclass(frozen=True)
class Truth:
    """The constants of the law of the status."""

    gain: float = 30.0
    goals: float = 1.0
    fatigue: float = 1.3
    slope: float = 0.8
    social: float = 1.3
    spur: float = 0.3
    offset: float = 0.06


@dataclass(frozen=True)
class World:
    """What happened. Arrays are indexed by user, then day.

    Attributes:
        attributes: (users, days, 30), within the bounds of ATTRIBUTES.
        status: (users, days), 0 or 1.
        friends: (users, DEGREE), numbers of friends, -1 where there is none.
        influence: (users, days, DEGREE): psi of each friend on the user; 0 where there is none.
        probability: (users, days): of status 1, given all that was recorded the day before; that of day 0 is
            1/2.
    """

    attributes: Floats
    status: Integers
    friends: Integers
    influence: Floats
    probability: Floats


class Chances:
    """Uniform numbers in (0, 1) by name, from a public seed."""

    def __init__(self, seed: str) -> None:
        self._seed = seed

    def uniform(self, name: str, *shape: int) -> Floats:
        words = hashlib.shake_256(f"{self._seed} {name}".encode()).digest(4 * int(np.prod(shape)))
        numbers: Floats = (np.frombuffer(words, dtype="<u4").reshape(shape) + 0.5) / 2.0**32
        return numbers

    def normal(self, name: str, *shape: int) -> Floats:
        from scipy.special import ndtri

        numbers: Floats = ndtri(self.uniform(name, *shape))
        return numbers


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + e^-x)."""
    values: Floats = 0.5 + 0.5 * np.tanh(0.5 * x)
    return values


def circles(chances: Chances, users: int) -> Integers:
    """Which circle each user moves in; a circle shares a part of its mood."""
    numbers: Integers = np.floor(chances.uniform("circle", users) * CIRCLES).astype(np.int64)
    return numbers


def befriend(chances: Chances, users: int = USERS, links: int = LINKS, degree: int = DEGREE) -> Integers:
    """A friend graph as lists: people of one circle meet more
    often; nobody has more friends than `degree`.
    """
    circle = circles(chances, users)
    upper = np.triu_indices(users, 1)
    order = np.argsort(
        chances.uniform("meeting", len(upper[0])) / np.where(circle[upper[0]] == circle[upper[1]], 30.0, 1.0),
        kind="stable",
    )
    friends: list[list[int]] = [[] for _ in range(users)]
    left = links
    for one, other in zip(upper[0][order], upper[1][order], strict=True):
        if left and len(friends[one]) < degree and len(friends[other]) < degree:
            friends[one].append(int(other))
            friends[other].append(int(one))
            left -= 1
    return np.array([found + [-1] * (degree - len(found)) for found in friends])


def simulate(
    seed: str = SEED, truth: Truth | None = None, *, users: int = USERS, days: int = DAYS, links: int = LINKS
) -> World:
    """Let it happen, day by day."""
    truth, chances = truth or Truth(), Chances(seed)
    friends = befriend(chances, users, links)
    ties = np.round(0.4 + 0.6 * chances.uniform("tie", users, DEGREE), 3)
    world = World(
        np.zeros((users, days, len(ATTRIBUTES))),
        np.zeros((users, days), np.int64),
        friends,
        np.zeros((users, days, DEGREE)),
        np.full((users, days), 0.5),
    )
    diary = _Diary(world, chances)
    for day in range(days):
        if day:
            world.probability[:, day] = sigmoid(truth.gain * drive(world, day - 1, truth))
        world.status[:, day] = diary.chance[:, day] < world.probability[:, day]
        diary.write(day)
        active = activity(world.attributes[:, day])
        world.influence[:, day] = np.where(friends >= 0, np.round(ties * active[friends], 3), 0.0)
    return world


def activity(attributes: Floats) -> Floats:
    """How active a user was lately, in [0, 1]: half exercising days of the week, half the day's distance."""
    names = list(ATTRIBUTES)
    days, distance = attributes[..., names.index("exercising_days")], attributes[..., names.index("distance")]
    active: Floats = 0.5 * days / 7 + 0.5 * np.minimum(distance / 10, 1)
    return active


def drive(world: World, day: int, truth: Truth) -> Floats:
    """self + social + spur at the end of a day: the law of the next day's status is a sigmoid of it."""
    return (
        own(world.attributes, day, truth)
        + truth.social * social(world, day)
        + truth.spur * spur(world.attributes, day)
        + truth.offset
    )


def own(attributes: Floats, day: int, truth: Truth) -> Floats:
    """Self-motivation, from the last five days."""
    names = list(ATTRIBUTES)
    total, weights = np.zeros(len(attributes)), 0.0
    for lag in range(min(LAGS, day + 1)):
        past, weight = attributes[:, day - lag], 2.0**-lag
        goals, distance, slope = (
            past[:, names.index(name)] for name in ("goals_achieved", "distance", "wellness_slope")
        )
        total += weight * (truth.goals * goals / 5 - truth.fatigue * distance / 20 + truth.slope * slope / 10)
        weights += weight
    return total / weights


def social(world: World, day: int) -> Floats:
    """Mean influence of a user's friends; 0 without friends. Eq. 25 and 26 have the same mean."""
    count = np.maximum((world.friends >= 0).sum(axis=1), 1)
    mean: Floats = world.influence[:, day].sum(axis=1) / count - 0.3
    return mean


def spur(attributes: Floats, day: int) -> Floats:
    """What a competition does: a product of two attributes, which no linear model has."""
    names = list(ATTRIBUTES)
    joined, days = (
        attributes[:, day, names.index("competitions_joined")],
        attributes[:, day, names.index("exercising_days")],
    )
    pushed: Floats = np.minimum(joined, 1) * (1 - 2 * days / 7)
    return pushed


class _Diary:
    """Fills in the attributes of a day from the status, the days before and chance."""

    def __init__(self, world: World, chances: Chances) -> None:
        users, days = world.status.shape
        self.world, self.chance = world, chances.uniform("status", users, days)
        self._uniform = {name: chances.uniform(name, users, days) for name in ATTRIBUTES}
        circle = circles(chances, users)
        self._mood = (
            0.6 * _mood(chances.normal("mood", users, days))
            + 0.8 * _mood(chances.normal("circle mood", CIRCLES, days))[circle]
        )
        self._bmi = 25 + 15 * chances.uniform("start", users)
        self._wellness = 40 + 30 * chances.uniform("health", users)

    def write(self, day: int) -> None:
        """One day of every user."""
        more, mood = self.world.status[:, day], self._mood[:, day]
        chance = {name: uniform[:, day] for name, uniform in self._uniform.items()}
        week = self.world.status[:, max(0, day - 6) : day + 1]
        goals = np.floor(6 * chance["goals_set"])
        distance = (2 + 6 * more) * (0.5 + chance["distance"]) + 2 * sigmoid(mood)
        before = self._wellness
        self._wellness = np.clip(
            0.97 * before + 0.03 * (30 + 50 * week.mean(axis=1)) + 3 * (chance["wellness_score"] - 0.5),
            0,
            100,
        )
        slimmer = 0.05 * (0.5 - more) + 0.2 * (chance["bmi"] - 0.5)
        self._bmi = np.clip(self._bmi + slimmer, 20, 60)
        found = {
            "competitions_joined": np.where(
                chance["competitions_joined"] < 0.13, 1 + (chance["competitions_joined"] < 0.02), 0.0
            ),
            "exercising_days": np.round(7 * week.mean(axis=1)),
            "goals_set": goals,
            "goals_achieved": np.floor(
                (goals + 0.99) * sigmoid(1.5 * mood + 2 * (chance["goals_achieved"] - 0.5))
            ),
            "distance": distance,
            "speed": 3 + 2 * more + 3 * chance["speed"],
            "wellness_score": self._wellness,
            "bmi": self._bmi,
            "bmi_slope": slimmer,
            "wellness_slope": self._wellness - before,
            **{
                f"messages_{kind}": np.where(chance[f"messages_{kind}"] < 0.0018, 1.0, 0.0)
                for kind in MESSAGES
            },
        }
        for column, (name, (low, high)) in enumerate(ATTRIBUTES.items()):
            self.world.attributes[:, day, column] = np.round(np.clip(found[name], low, high), 2)


def _mood(shocks: Floats) -> Floats:
    """A mood of its own for every user, which lasts for days.

    It acts on the status only through what is recorded.
    """
    mood = shocks.copy()
    for day in range(1, mood.shape[1]):
        mood[:, day] = 0.8 * mood[:, day - 1] + 0.6 * shocks[:, day]
    return mood
