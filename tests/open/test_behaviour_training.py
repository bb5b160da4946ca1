"""From a released window moment to a model that predicts, is saved and comes back; and the page that tells
the results.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from airlock.datasets.behaviour import daily
from airlock.datasets.simulation import simulate
from airlock.inside import manifest
from airlock.models.papers.behaviour import BehaviourModel
from airlock.params import Params
from airlock.privacy.plan import Facts
from airlock.records.encoding import Encoded, pack
from airlock.storage import load_model, save_model
from bench.papers import behaviour_page
from bench.papers.behaviour import cell, results
from bench.papers.behaviour_data import BehaviourData, last_days
from stages.open.mechanisms import behaviour as open_half
from stages.release.papers.pcdbn import behaviour
from tests.release.papers.pcdbn.test_behaviour import FACTS, KEY, Reader, network

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("rows", ["machine", "window"])
def test_a_model_comes_back_from_its_folder(tmp_path: Path, rows: str) -> None:
    """Through the manifest, which states the unit and both bounds."""
    x, y, users, _ = network(4)
    params = Params.model_validate(
        {
            "release": {
                "mechanism": "behaviour",
                "unit": "user",
                "options": {"days": 3, "height": 3, "groups": 2, "rows": rows},
            }
        }
    )
    plan, folder = behaviour.plan(params, FACTS), tmp_path / "release"
    tensors, details = behaviour.make(params, FACTS, Reader(x, y, users), key=KEY, release_id="id")
    data = {
        "kind": "tabular",
        "n": FACTS.n,
        "shape": list(FACTS.shape),
        "labels": list(FACTS.labels),
        "schema": "s",
    }
    manifest.write(folder, plan=plan, facts=FACTS, release_id="id", details={"data": data, **details})
    release = manifest.load(folder)
    assert (release.unit, release.proven.unit) == ("user", "user")
    assert release.parameters["bounds"] == {"records": 3, "appearances": 12}
    assert release.details["contributions"] == {"unit": "user", "records": 3, "appearances": 12}
    model = open_half.train(params.train, release, tensors).model
    save_model(replace(model, document={"schema": None}), tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert isinstance(again, BehaviourModel)
    assert np.array_equal(again.logits(x), model.logits(x))
    assert again.predict(x).shape == (len(x),)


def small(users: int = 60, days: int = 60) -> BehaviourData:
    """A small network: records to day 44, the rest to judge on."""
    from airlock.datasets.behaviour import columns

    found = daily(simulate("airlock behaviour test", users=users, days=days, links=5 * users))
    bounds = np.array([bound for _, bound in columns()])
    values = np.concatenate(
        [found.past.reshape(len(found.status), -1), found.present, found.influence], axis=1
    )
    x, y = (values - bounds[:, 0]) / (bounds[:, 1] - bounds[:, 0]), found.status.astype(np.int32)
    train = found.point < 45
    parts = [Encoded(x[chosen], y[chosen], np.ones(chosen.sum(), np.uint8)) for chosen in (train, ~train)]
    friends = {"slots": 16, "appearances": 41 * 16}
    facts = Facts(
        "net",
        True,
        "tabular",
        int(train.sum()),
        0,
        x.shape[1:],
        ("less", "more"),
        "s",
        "f",
        per_user=41,
        friends=friends,
    )
    batches = [pack(parts[0], user=found.users[train])]
    return BehaviourData(
        facts, batches, parts[1], parts[0], {"records": found.only(train), "holdout": found.only(~train)}
    )


def test_what_is_released_predicts() -> None:
    """Far above chance per record at a large epsilon, and no better than chance per user at a tiny one."""
    data = small()
    good = cell(data, "prediction", "window", "record", 8.0, 1)
    assert good["simulated"] and good["accuracy_mean"] > 0.7
    assert good["proven_epsilon"] <= 8.0
    assert abs(cell(data, "prediction", "window", "user", 0.001, 1)["accuracy_mean"] - 0.5) < 0.2
    assert last_days(data, 10).facts.n == 600


def test_the_page_is_made_from_the_results() -> None:
    page = (ROOT / "docs/behaviour.md").read_text()
    assert behaviour_page.page(page, results()) == page
    assert all(row["simulated"] for row in results())
    assert all("simulated" in row["dataset"] for row in results())
