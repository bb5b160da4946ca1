"""What a Python stage is given: the interpreter and its packages,
none that carries data for an open stage.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from airlock.wall.grants import CARRIERS, cover, python_grants, unlisted_records

CODE = Path(__file__).resolve().parents[2] / "stages"


def test_no_installed_package_carries_records_that_nobody_has_looked_at() -> None:
    assert unlisted_records() == []


def test_hidden_are_only_carriers_and_foreign_packages() -> None:
    hidden = python_grants("open", CODE).hidden
    assert any(path.name == "sklearn" for path in hidden)
    for path in hidden:
        known = any(str(path).endswith(f"site-packages/{carrier}") for carrier in CARRIERS)
        assert known or path.name in ("site-packages", "dist-packages", "R")
    assert not any(path.name == "sklearn" for path in python_grants("release", CODE).hidden)


def test_every_granted_path_exists() -> None:
    grants = python_grants("open", CODE)
    assert all(path.exists() for path in (*grants.read, *grants.execute, *grants.hidden, *grants.devices))


def test_no_home_and_no_workspace_is_granted() -> None:
    grants = python_grants("open", CODE)
    for private in (
        Path.home(),
        CODE.parent,
        Path("/"),
        Path("/etc"),
        Path("/usr"),
        Path("/tmp"),
        Path("/var"),
    ):
        assert private not in {path.resolve() for path in (*grants.read, *grants.execute)}


def test_only_listed_variables_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("TZ", "UTC")
    environment = python_grants("open", CODE).environment
    assert "AWS_SECRET_ACCESS_KEY" not in environment
    assert environment["TZ"] == "UTC"


def test_cover_holds_all_but_the_hidden(tmp_path: Path) -> None:
    for name in ("a/one", "a/b/two", "a/b/hidden/three", "a/bold/four", "c/five"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "a/link").symlink_to(tmp_path / "a/b/hidden")
    shown = cover(str(tmp_path), [str(tmp_path / "a/b/hidden")])
    names = {os.path.relpath(path, tmp_path) for path, _ in shown}
    assert names == {"a/one", "a/b/two", "a/bold", "c"}
    assert cover(str(tmp_path / "c"), []) == [(str(tmp_path / "c"), True)]
    assert cover(str(tmp_path / "c"), [str(tmp_path / "c")]) == []


def test_the_interpreter_itself_is_granted() -> None:
    granted = {path.resolve() for path in python_grants("open", CODE).execute}
    assert Path(sys.executable).resolve() in granted
