"""A clinic in a home of its own; each module says which records its users have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.clinic import Clinic, make_clinic


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Clinic:
    """With the schema that the module calls USERS, where it has one."""
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("AIRLOCK_LEDGER_URL", raising=False)
    made = make_clinic(tmp_path)
    if users := getattr(request.module, "USERS", None):
        made.write_schema(users)
    return made
