"""The behaviour model as published against a slow oracle: windows, Delta, the law of its noise and where it is drawn,
steps of contrastive divergence, and the head, number by number.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from airlock.models.papers.boltzmann import fresh
from airlock.models.papers.chebyshev import polynomial
from stages.release.keyed_noise import KeyedNoise
from stages.release.papers.pcdbn import behaviour_published as published
from tests.models.papers.test_dynamics import SMALL
from tests.release.papers.pcdbn.test_behaviour import COLUMNS, FACTS, KEY, Reader, network
from tests.release.papers.pcdbn.test_behaviour_published import parameters

D, N, HEIGHT, GROUPS = SMALL.attributes, SMALL.days, SMALL.height, 6
PLACES = D - HEIGHT + 1
ALPHAS = (16 / 32, 35 / 32, 0, -35 / 32, 0, 21 / 32, 0, -5 / 32)
DRAWN = np.random.default_rng(0)
PAST, PRESENT, INFLUENCE = DRAWN.random((5, D, N)), DRAWN.random((5, D)), DRAWN.normal(size=5)


class Told(KeyedNoise):
    """Says what it was asked for and what it answered."""

    asked: list[tuple[Any, ...]]

    def add_laplace(self, exact: Any, scales: Any, *, release_pass: int, purpose: str) -> Any:
        found = super().add_laplace(exact, scales, release_pass=release_pass, purpose=purpose)
        self.asked.append((purpose, exact.shape, scales, found))
        return found


def told() -> Told:
    keyed = Told(KEY, "id")
    object.__setattr__(keyed, "asked", [])
    return keyed


def value(alphas: Any, x: float) -> float:
    return float(sum(alpha * x**order for order, alpha in enumerate(alphas)))


def ratio(drives: Any, group: int) -> float:
    """Z: a drive over the larger of its size and (2 + 1e-4 sum of squares over five neighbouring maps)^0.75."""
    near = [drives[k] for k in range(group - 2, group + 3) if 0 <= k < len(drives)]
    return float(drives[group] / max(abs(drives[group]), (2 + 1e-4 * sum(one**2 for one in near)) ** 0.75))


def slow_hidden(filters: Any, biases: Any, past: Any, alphas: Any) -> Any:
    """(K, places), each in [0, 1]."""
    drives = np.zeros((len(filters), PLACES))
    for k, place, r, s in itertools.product(range(len(filters)), range(PLACES), range(HEIGHT), range(N)):
        drives[k, place] += filters[k, r, s] * past[place + r, s]
    drives += biases[:, None]
    pairs = itertools.product(range(len(filters)), range(PLACES))
    found = [min(max(value(alphas, ratio(drives[:, place], k)), 0), 1) for k, place in pairs]
    return np.array(found).reshape(len(filters), PLACES)


def slow_answer(filters: Any, bias: float, hidden: Any, alphas: Any) -> Any:
    drives = np.full((D, N), float(bias))
    for k, place, r, s in itertools.product(range(len(filters)), range(PLACES), range(HEIGHT), range(N)):
        drives[place + r, s] += filters[k, r, s] * hidden[k, place]
    return np.array([min(max(value(alphas, ratio([one], 0)), 0), 1) for one in drives.ravel()]).reshape(D, N)


def slow_step(parts: dict[str, Any], up: Any, down: Any, rate: float, few: Any) -> dict[str, Any]:
    """Contrastive divergence for every weight of Eqs. 23-26, record by record; means over records and places."""
    moved = {name: np.array(part, dtype=np.float64) for name, part in parts.items()}
    for t in few:
        biases = parts["hidden"] + parts["own"] @ PRESENT[t] + parts["social"] * INFLUENCE[t]
        bias = parts["visible"] + parts["visible_own"] @ PRESENT[t] + parts["visible_social"] * INFLUENCE[t]
        hidden = slow_hidden(parts["filters"], biases, PAST[t], up)
        again = slow_answer(parts["filters"], bias, hidden, down)
        found = slow_hidden(parts["filters"], biases, again, up)
        each = rate / len(few)
        for k, place in itertools.product(range(len(biases)), range(PLACES)):
            seen, answered = PAST[t][place : place + HEIGHT], again[place : place + HEIGHT]
            moved["filters"][k] += each / PLACES * (hidden[k, place] * seen - found[k, place] * answered)
        gap, drift = (hidden - found).mean(1), (PAST[t] - again).mean()
        moved["hidden"] += each * gap
        moved["visible"] += each / PLACES * (PAST[t] - again).sum()
        moved["own"] += each * np.outer(gap, PRESENT[t])
        moved["social"] += each * gap * INFLUENCE[t]
        moved["visible_own"] += each * drift * PRESENT[t]
        moved["visible_social"] += each * drift * INFLUENCE[t]
    return moved


def slow_delta(few: Any) -> float:
    """Twice the largest sum of a record's energy terms, at weights 1 and with the sizes of the constants."""
    sums = []
    for t in few:
        total = PAST[t].sum()
        for place in range(PLACES):
            drive = PAST[t][place : place + HEIGHT].sum() + 1 + PRESENT[t].sum() + INFLUENCE[t]
            total += value([abs(alpha) for alpha in ALPHAS], ratio([drive] * 5, 2)) * abs(drive)
        sums.append(total)
    return float(2 * max(sums))


def windows() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    past, present, influence = (torch.from_numpy(one).float() for one in (PAST, PRESENT, INFLUENCE))
    return past[:, None], present, influence


def parts_of(machine: Any, dynamics: Any) -> dict[str, Any]:
    named = ("own", "social", "visible_own", "visible_social")
    parts = {name: getattr(dynamics, name).double().numpy() for name in named}
    parts |= {"filters": machine.filters[:, 0].double().numpy(), "hidden": machine.hidden.double().numpy()}
    return {**parts, "visible": machine.visible.double().numpy()[0]}


def test_delta_is_twice_the_largest_sum_of_a_records_terms() -> None:
    assert polynomial("published-7").alphas == ALPHAS
    found = published.batch_delta(windows(), SMALL, polynomial("published-7"))
    assert found == pytest.approx(slow_delta(range(5)), rel=1e-5)


@pytest.mark.parametrize("batch", [5, 3])
def test_pretraining_is_what_the_slow_oracle_says(batch: int) -> None:
    """Two epochs in their orders: constants get the draws of their way, times a batch's Delta over its records."""
    asked: Any = {"groups": GROUPS, "height": HEIGHT, "days": N, "pretraining_epochs": 2, "rate": 0.5}
    options = published.Options(batch=batch, **asked)
    draws = [0.05 * DRAWN.normal(size=8) for _ in range(2)]
    machine, dynamics = published.pretrain(
        windows(),
        SMALL,
        options,
        (torch.from_numpy(draws[0]), torch.from_numpy(draws[1])),
    )
    order = torch.Generator().manual_seed(published.SEED)
    first = fresh(GROUPS, 1, (HEIGHT, N), order)
    assert not first.hidden.any() and not first.visible.any()
    parts: dict[str, Any] = {"filters": first.filters[:, 0].double().numpy(), "visible": 0.0}
    parts |= {"hidden": np.zeros(GROUPS), "own": np.zeros((GROUPS, D)), "social": np.zeros(GROUPS)}
    parts |= {"visible_own": np.zeros(D), "visible_social": 0.0}
    for _ in range(2):
        rows = torch.randperm(5, generator=order).tolist()
        for few in (rows[start : start + batch] for start in range(0, 5, batch)):
            up, down = (np.array(ALPHAS) + slow_delta(few) / len(few) * one for one in draws)
            parts = slow_step(parts, up, down, 0.5, few)
    for name, found in parts_of(machine, dynamics).items():
        assert found == pytest.approx(parts[name], abs=2e-4), name


def test_constants_are_drawn_once_for_each_way_with_the_scale_of_epsilon() -> None:
    options, constants = published.Options(), []
    for number in range(40):
        keyed = KeyedNoise(bytes([number] * 32), "id")
        constants += [draws.numpy() for draws in published._constants(keyed, options, 0.25)]
    assert len(np.unique(constants, axis=0)) == 80
    assert np.abs(constants).mean() == pytest.approx(4, rel=0.1)
    # Of a Laplace variable; a normal one would have 1.25.
    assert np.std(constants) / np.abs(constants).mean() == pytest.approx(2**0.5, rel=0.08)


def slow_adam(start: Any, slopes: Any, *, rate: float) -> Any:
    """As it was published: both means corrected, 1e-8 beside the root."""
    place, first, second = start.copy(), 0 * start, 0 * start
    for count, slope in enumerate(slopes, 1):
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        place = place - rate * (first / (1 - 0.9**count)) / (np.sqrt(second / (1 - 0.999**count)) + 1e-8)
    return place


def test_the_head_is_adams_with_one_noise_vector_a_step_on_the_pooled_units() -> None:
    """Lap((p + p^2 / 4) / (epsilon * records)), p pooled units; in a row such a unit counts a tenth."""
    pooled, width, epsilon = 2 * SMALL.blocks, 2 * SMALL.blocks + D + 2, 3.0
    rows, labels = DRAWN.normal(size=(7, width)), np.array([0, 1, 2, 0, 1, 2, 1])
    options, keyed = published.Options(groups=2, batch=4, epochs=3, rate=2e-3), told()
    known = (torch.from_numpy(rows).float(), torch.from_numpy(labels), 3)
    head, losses = published.fine_tune(known, SMALL, options, keyed, epsilon)
    ((_, shape, scale, drawn),) = keyed.asked
    assert shape == (6, pooled)
    assert scale / 2**16 == pytest.approx((pooled + pooled**2 / 4) / 3.0)
    order, slopes = torch.Generator().manual_seed(published.SEED), list[Any]()
    place, weights = np.zeros((width + 1, 3)), list[Any]()
    for epoch in range(3):
        seen, total = torch.randperm(7, generator=order).tolist(), 0.0
        for few in (seen[:4], seen[4:]):
            noise = np.zeros(width)
            noise[:pooled] = 0.1 * drawn[len(slopes)] / 2**16 / len(few)
            inputs = np.concatenate([rows[few] + noise, np.ones((len(few), 1))], axis=1)
            scores = np.exp(inputs @ place)
            chances = scores / scores.sum(1, keepdims=True)
            total -= np.log(chances[range(len(few)), labels[few]]).sum() / 7
            slopes.append(inputs.T @ (chances - np.eye(3)[labels[few]]) / len(few))
            place = slow_adam(np.zeros((width + 1, 3)), slopes, rate=0.02)
        weights.append(place)
        assert losses[epoch] == pytest.approx(total, rel=1e-4)
    assert head["head"] == pytest.approx(place[:-1], abs=1e-5)
    assert head["head_offset"] == pytest.approx(place[-1], abs=1e-5)


def test_what_is_trained_on_are_windows_with_the_mean_influence_and_no_null_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And what is released is the machine that was trained: influence is of a slot again."""
    x, y, users, _ = network(1)
    y[4], seen = -1, dict[str, Any]()
    plain = published.pretrain

    def noted(windows: Any, *others: Any) -> Any:
        seen["windows"], seen["made"] = windows, plain(windows, *others)
        return seen["made"]

    monkeypatch.setattr(published, "pretrain", noted)
    options = {"days": N, "height": HEIGHT, "groups": 2, "batch": 5, "epochs": 1, "rate": 0.5}
    tensors, _ = published.make(
        parameters(options=options), FACTS, Reader(x, y, users), key=KEY, release_id="id"
    )
    kept = np.delete(x, 4, axis=0)
    past, present, influence = (one.numpy() for one in seen["windows"])
    assert past[:, 0] == pytest.approx(kept[:, : D * N].reshape(-1, D, N), abs=1e-4)
    assert present == pytest.approx(kept[:, D * N : COLUMNS], abs=1e-4)
    slots = kept[:, COLUMNS:]
    mean = [sum(2 * one - 1 for one in row if one > 0) / SMALL.slots for row in slots]
    assert influence == pytest.approx(np.array(mean), abs=1e-3)
    machine, dynamics = seen["made"]
    assert tensors["machine.filters"] / 2**16 == pytest.approx(
        machine.filters.reshape(2, -1).numpy(), abs=1e-5
    )
    assert tensors["machine.hidden"] / 2**16 == pytest.approx(machine.hidden.numpy(), abs=1e-5)
    assert tensors["machine.own"] / 2**16 == pytest.approx(dynamics.own.numpy(), abs=1e-5)
    assert np.abs(dynamics.social.numpy()).min() > 1e-3
    assert tensors["machine.social"] * SMALL.slots / 2**16 == pytest.approx(dynamics.social.numpy(), abs=1e-4)


def test_settings_are_the_papers() -> None:
    options = published.Options()
    assert (options.days, options.groups, options.height) == (4, 10, 12)
    assert (options.approximation, options.batch) == ("published-7", 111)
    assert (options.pretraining_epochs, options.epochs, options.rate) == (2, 600, 1e-3)
