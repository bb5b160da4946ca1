"""A walk that stops and goes on ends where one that never stopped
does, and keyed noise belongs to one sum.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stages.release import interactive
from stages.release.interactive import Keyed, State, walk

KEYED = Keyed(bytes(range(32)), "a")


class Killed(Exception):
    """In place of a signal."""


def advance_until(last: int, seen: list[int]) -> object:
    def advance(step: int, state: State) -> State:
        if step == last:
            raise Killed
        seen.append(step)
        total = state["x"] * 0.5
        return {"x": total + KEYED.gaussian(step, "sum", total, 1.0)}

    return advance


def test_resumed_walk_ends_in_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactive, "CHECKPOINT_STEPS", 4)
    start, whole, seen = {"x": torch.zeros(5)}, [], []
    want = walk(start, advance_until(-1, whole), steps=11, identity="a")  # type: ignore[arg-type]
    with pytest.raises(Killed):
        walk(start, advance_until(6, seen), steps=11, identity="a", checkpoint=tmp_path)  # type: ignore[arg-type]
    got = walk(start, advance_until(-1, seen), steps=11, identity="a", checkpoint=tmp_path)  # type: ignore[arg-type]
    assert torch.equal(want["x"], got["x"])
    assert seen == [0, 1, 2, 3, 4, 5, 4, 5, 6, 7, 8, 9, 10]


def test_checkpoint_of_another_release_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interactive, "CHECKPOINT_STEPS", 1)
    start, seen = {"x": torch.zeros(5)}, []
    walk(start, advance_until(-1, []), steps=3, identity="a", checkpoint=tmp_path)  # type: ignore[arg-type]
    walk(start, advance_until(-1, seen), steps=3, identity="b", checkpoint=tmp_path)  # type: ignore[arg-type]
    assert seen == [0, 1, 2]


def test_noise_is_the_same_for_the_same_sum_only() -> None:
    total = torch.linspace(0, 1, 1000)
    first = KEYED.gaussian(3, "sum", total, 1.0)
    assert torch.equal(first, KEYED.gaussian(3, "sum", total.clone(), 1.0))
    moved = total.clone()
    moved[0] += 1e-6
    for other in (
        KEYED.gaussian(4, "sum", total, 1.0),
        KEYED.gaussian(3, "sum", moved, 1.0),
        Keyed(KEYED.key, "b").gaussian(3, "sum", total, 1.0),
    ):
        assert abs(float(torch.corrcoef(torch.stack([first, other]))[0, 1])) < 0.15


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    walk(
        {"x": torch.zeros(1)}, advance_until(-1, []), steps=2, identity="a", tick=lambda *at: told.append(at)
    )  # type: ignore[arg-type]
    assert told == [(0, 2), (1, 2), (2, 2)]
