"""One finished workspace and its bundle for all tests here: nothing in them changes either."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from airlock.owner.home import Project
from airlock.owner.keys import Signer, signer
from tests.conftest import Workspace


@dataclass(frozen=True)
class Submission:
    """A bundle, and the workspace that it was made in."""

    workspace: Workspace
    bundle: Path

    @property
    def signer(self) -> Signer:
        """The owner's key."""
        folder = next((self.workspace.home / "airlock").iterdir())
        return signer(Project(folder.name, folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs them all, so that the pipeline runs once."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("bundle"))


@pytest.fixture(scope="session")
def submission(_finished: Workspace, tmp_path_factory: pytest.TempPathFactory) -> Submission:
    """The embedded default, bundled."""
    bundle = tmp_path_factory.mktemp("submission") / "submission.zip"
    _finished.run("airlock", "bundle", "--output", str(bundle))
    return Submission(_finished, bundle)
