"""The tool as it is installed: one wheel and one empty environment for all tests here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Workspace
from tests.support.installation import build, install


@dataclass(frozen=True)
class Installed(Workspace):
    """A workspace whose commands are those of the installed wheel, not of this clone."""

    bin: Path = Path()

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs them all, so that the wheel is built once."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("workspaces"))


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `python -m build` makes."""
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with the wheel and what it asks for, and nothing else."""
    return install(wheel, tmp_path_factory.mktemp("environment") / "venv")


@pytest.fixture(scope="session")
def owner(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A workspace of `airlock new` in which the public records were released, and nothing was trained yet."""
    folder = tmp_path_factory.mktemp("owner")
    (folder / "home").mkdir()
    outside = Installed(folder, folder / "home", installed)
    outside.run("airlock", "new", "clinic")
    made = Installed(folder / "clinic", folder / "home", installed)
    made.run("airlock", "data", "fetch", "wdbc")
    made.run("dvc", "repro", "release")
    made.commit("Release")
    return made
