"""A real workspace for tests: the project's tracked files in an empty folder, its own git, DVC and
AIRLOCK_HOME.
"""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# With as many threads as cores, test processes wait for each other at every small sum. Before torch is imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import yaml

from tests.support import preloaded

HERE = Path(__file__).parent
ROOT = HERE.parent
BIN = Path(sys.executable).parent
PATIENCE = 600  # seconds
FIRST = ("flows", "test_ordinary_user.py", "test_cluster.py", "workspaces", "bundle")  # then whole pipelines
TOGETHER = ("conformance", "privacy", "release")
SERVERS = ("prefect", "cluster", "postgresql", "account")
"""Groups of tests that share a server, or take a second account."""


@pytest.hookimpl(tryfirst=True)  # before markers select
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest first: what begins last keeps one of two cores waiting for its end. And where prices are
    found that take seconds and are remembered, the tests of one file stay in one process. Whoever shares a server
    is marked so.
    """
    items.sort(key=lambda item: _turn(item.path.relative_to(HERE)))
    for item in items:
        path, group = item.path.relative_to(HERE), item.get_closest_marker("xdist_group")
        if path.parts[0] in TOGETHER and not group:
            item.add_marker(pytest.mark.xdist_group(path.stem))
        if group and group.args[0] in SERVERS:
            item.add_marker(pytest.mark.servers)


def _turn(path: Path) -> int:
    if path.parts[0] in FIRST:
        return FIRST.index(path.parts[0])
    return FIRST.index(path.name) if path.name in FIRST else len(FIRST) + (len(path.parts) > 1)


def pytest_collection_finish() -> None:
    """What was imported stays: it need not be looked through for cycles again and again."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class Workspace:
    """One clone of the project, as a new user would have it."""

    root: Path
    home: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: os.environ[name] for name in ("LANG", "AIRLOCK_DATA_HOME", "TMPDIR") if name in os.environ
        }
        return {
            **kept,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "AIRLOCK_HOME": str(self.home / "airlock"),
            "DVC_NO_ANALYTICS": "1",
            "ITERATIVE_DO_NOT_TRACK": "1",
            "DVC_GLOBAL_CONFIG_DIR": str(self.home / "dvc"),
            "DVC_SITE_CACHE_DIR": str(self.home / "dvc-site"),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
        }

    def run(
        self, *command: str, check: bool = True, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command here; with `check`, a failure shows what it printed."""
        given = {**self.environment, **(environment or {})}
        if preloaded.fits(command, given):
            done = preloaded.run(command, cwd=self.root, environment=given, timeout=PATIENCE)
        else:
            done = subprocess.run(
                command,
                cwd=self.root,
                env=given,
                capture_output=True,
                text=True,
                check=False,
                timeout=PATIENCE,
            )
        if check and done.returncode != 0:
            raise AssertionError(
                f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done

    def commit(self, message: str = "Work") -> None:
        self.run("git", "add", "-A")
        self.run(
            "git",
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.org",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            message,
        )

    def set(self, key: str, value: Any, *, known: bool = True) -> None:
        """Change one value of params.yaml, for instance `release.epsilon`; text is read as YAML."""
        file = self.root / "params.yaml"
        document = yaml.safe_load(file.read_text())
        *sections, last = key.split(".")
        place = document
        for section in sections:
            place = place[section]
        assert not known or last in place, f"params.yaml has no {key}"
        place[last] = yaml.safe_load(value) if isinstance(value, str) else value
        file.write_text(yaml.safe_dump(document, sort_keys=False))

    def edit(self, path: str, old: str, new: str) -> None:
        file = self.root / path
        text = file.read_text()
        assert old in text, f"{old!r} is not in {path}"
        file.write_text(text.replace(old, new))


def make_workspace(folder: Path) -> Workspace:
    """A fresh clone below `folder`."""
    root, home = folder / "work", folder / "home"
    home.mkdir(parents=True)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in listed.splitlines():
        if (
            name.startswith(("tests/", "bench/", "receipts/", "data/handles/"))
            or name == "dvc.lock"
            or not (ROOT / name).is_file()
        ):
            continue
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, root / name)
    # Two passes instead of thirteen: what `auto` means is tests/models/features/test_choice.py's to say.
    params = (root / "params.yaml").read_text()
    (root / "params.yaml").write_text(params.replace("mechanism: auto", "mechanism: coefficients", 1))
    workspace = Workspace(root, home)
    workspace.run("git", "init", "-q", "-b", "main")
    workspace.commit("Clone")
    return workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A fresh clone in which nothing has run."""
    return make_workspace(tmp_path)


def made_once(
    factory: pytest.TempPathFactory,
    worker: str,
    name: str,
    fill: Callable[[Workspace], object],
    started: dict[str, str] | None = None,
) -> Workspace:
    """A workspace in which the pipeline has run, made once for all workers of pytest-xdist; nothing in it
    changes. `started` says how its commands are, `preloaded.NOT_FORKED` that it is as for a user.
    """
    shared = factory.getbasetemp()
    folder = (shared if worker == "master" else shared.parent) / name
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            fresh = folder.with_name(f"un{name}")
            shutil.rmtree(fresh, ignore_errors=True)
            made = make_workspace(fresh)
            fill(made)
            made.commit("Add the records")
            made.run("dvc", "repro", environment=started)
            made.commit("Run the pipeline")
            _move_records(fresh, folder)
            fresh.rename(folder)
    return Workspace(folder / "work", folder / "home")


@pytest.fixture(scope="session")
def _finished(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Workspace:
    def fill(made: Workspace) -> None:
        made.run("airlock", "data", "fetch", "wdbc")

    return made_once(tmp_path_factory, worker_id, "finished", fill, preloaded.NOT_FORKED)


@pytest.fixture(scope="session")
def _private(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Workspace:
    from tests.support import planted

    def fill(made: Workspace) -> None:
        planted.plant(made)
        made.set("evaluate.holdout", "private")

    return made_once(tmp_path_factory, worker_id, "private", fill)


@pytest.fixture
def finished(_finished: Workspace, tmp_path: Path) -> Workspace:
    """A clone in which the embedded default has run and was committed; each test gets a copy of its own."""
    return copy_of(_finished, tmp_path)


@pytest.fixture
def private(_private: Workspace, tmp_path: Path) -> Workspace:
    """A clone in which a private population of recognisable values (`planted.plant`) has run, to be judged on
    private records; each test gets a copy of its own.
    """
    return copy_of(_private, tmp_path)


def copy_of(made: Workspace, folder: Path) -> Workspace:
    """A copy that does not know that it is one."""
    shutil.copytree(made.root, folder / "work", symlinks=True)
    shutil.copytree(made.home, folder / "home", symlinks=True)
    _move_records(made.root.parent, folder, folder)
    return Workspace(folder / "work", folder / "home")


def _move_records(old: Path, new: Path, place: Path | None = None) -> None:
    """Raw files move with their workspace; their bytes and so their fingerprints are the same. What `airlock
    add` would write a second later.
    """
    for registry in ((place or old) / "home/airlock").glob("*/registry.json"):
        text = registry.read_text()
        assert f"{old}/" in text
        registry.write_text(text.replace(f"{old}/", f"{new}/"))
