"""One server for all tests of this folder: they share a group, and so a process of pytest-xdist."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import Workspace, copy_of
from tests.support.imports import listening
from tests.support.prefect_server import Station


@pytest.fixture(scope="session")
def plant(_finished: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """The workspace that the server's runs work in: the default pipeline has run there."""
    folder = tmp_path_factory.mktemp("plant")
    return copy_of(_finished, folder)


@pytest.fixture(scope="session")
def station(plant: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Station]:
    """A server with a worker on the sensitive side."""
    folder = tmp_path_factory.mktemp("station")
    made = Station(folder, plant.root, plant.environment | listening(folder / "hook"))
    try:
        made.work("sensitive")
        yield made
    finally:
        made.stop()
