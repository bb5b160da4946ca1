"""`airlock demo`, every command of it for real. It takes a minute or two, so it runs in `make stress`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Workspace


@pytest.mark.stress
def test_the_demo_walks_from_a_raw_file_to_predictions(tmp_path: Path) -> None:
    place = Workspace(tmp_path, tmp_path / "home")
    place.home.mkdir()
    said = place.run("airlock", "demo", "walk").stdout
    assert "2,000 records added" in said and "private records" in said and "The boundary holds." in said
    assert said.count("$ airlock") == 8 and "P10" not in said  # no record's value
    assert (tmp_path / "walk/workspace/data/model/model.json").is_file()
    assert not (place.home / "airlock").exists()  # the user's own keys are not touched
    again = place.run("airlock", "demo", "walk", check=False)
    assert again.returncode == 2 and "exists already" in again.stderr
