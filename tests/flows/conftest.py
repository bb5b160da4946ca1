"""One server for all tests of this folder: they share a group, and so a process of pytest-xdist."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Workspace, copy_of
from tests.support.imports import listening
from tests.support.prefect_server import Station


@pytest.fixture(scope="session")
def plant(_finished: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The workspace that the server's runs work in: the default pipeline has run there."""
    folder = tmp_path_factory.mktemp("plant")
    return copy_of(_finished, folder)


@contextmanager
def left_as_it_was(plant: Workspace) -> Iterator[None]:
    """For tests that run another population in the workspace that all tests of this folder share."""
    before = {name: (plant.root / name).read_bytes() for name in ("params.yaml", "dvc.lock")}
    yield
    for name, data in before.items():
        (plant.root / name).write_bytes(data)


_running: list[Station] = []


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """A server that nobody asks any more works on, for its schedule: it ends with the last test of this folder."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        while _running:
            _running.pop().stop()


@pytest.fixture(scope="session")
def station(plant: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Station:
    """A server with a worker on the sensitive side."""
    folder = tmp_path_factory.mktemp("station")
    made = Station(folder, plant.root, plant.environment | listening(folder / "hook"))
    _running.append(made)
    made.work("sensitive")
    return made
