"""Nothing that Prefect keeps (database, results, logs) holds a value of a record."""

from __future__ import annotations

import pytest

from tests.conftest import Workspace
from tests.support import planted
from tests.support.prefect_server import Station

pytestmark = pytest.mark.xdist_group("prefect")


def test_no_record_stands_in_what_prefect_keeps(station: Station, plant: Workspace) -> None:
    before = (plant.root / "params.yaml").read_text()
    planted.plant(plant)
    search = planted.wanted(timestamps=True)
    (plant.root / "params.yaml").write_text(before)
    state = station.end(station.run("pipeline/on-demand", overrides={"dataset": "planted"}))
    (plant.root / "params.yaml").write_text(before)
    assert state["type"] == "COMPLETED", state
    assert search.below(plant.home / "records.csv"), "the search finds nothing at all"
    assert search.below(station.folder) == []
    plant.run("dvc", "repro")  # the other tests find the workspace as it was
