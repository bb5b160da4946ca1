"""AdLM's Figs. 1 and 3 (bench/papers/adlm_maps.py)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from bench.papers import adlm, adlm_maps, adlm_program
from tests.support.sealed_records import pictures


def test_the_released_map_is_the_one_that_a_training_goes_on_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = pictures(120, 10, side=28)
    monkeypatch.setattr(adlm, "read", lambda *_: (x, y))
    monkeypatch.setattr(adlm, "read_mnist", lambda _: (x, y))
    monkeypatch.setattr(adlm_maps, "RESULTS", tmp_path / "maps.json")
    monkeypatch.setattr(adlm_maps, "EPSILONS", (0.5,))
    adlm_maps.measure()
    found = json.loads((tmp_path / "maps.json").read_text())
    asked = adlm_program.ask("adlm", 0.5, 1, 1800)
    tensors = adlm_program.make(asked, *adlm._records(asked))[2]
    assert found["records"] == 120
    assert np.allclose(tensors["relevance"] / (120 * 2**16), found["released"]["0.5"], atol=1e-4)
    assert all(min(one) == 0 and max(one) == 1 for one in found["digits"].values())


def test_the_picture_in_docs_is_what_the_results_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = adlm_maps.PICTURE.read_text()
    monkeypatch.setattr(adlm_maps, "PICTURE", tmp_path / "maps.svg")
    adlm_maps.draw()
    drawn = (tmp_path / "maps.svg").read_text()
    words = ("mean, no noise", "to the fourth power", *(f"claimed {one:g}" for one in adlm_maps.EPSILONS))
    assert all(word in drawn and word in kept for word in words)
    assert drawn.count("<image") == kept.count("<image") == len(adlm_maps.DIGITS) + 5
