"""A small workspace with a sandbox around it, for tests."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from airlock.wall import layers, sandbox

ROOT = Path(__file__).resolve().parents[2]
SECRET = "the secret of the raw file"


@dataclass
class Cell:
    """Runs Python code as an open stage of a workspace with one dep and one raw file."""

    base: Path
    output: str = field(default="", init=False)

    def __post_init__(self) -> None:
        for folder in ("data/raw", "data/released", "staging", "scratch"):
            (self.base / folder).mkdir(parents=True)
        self.raw.write_text(SECRET)
        self.dep.write_text("the dep")

    @property
    def raw(self) -> Path:
        return self.base / "data/raw/records.csv"

    @property
    def dep(self) -> Path:
        return self.base / "data/released/table"

    @property
    def staging(self) -> Path:
        return self.base / "staging"

    def grants(self, zone: str = "open", **changes: Any) -> sandbox.Grants:
        grants = sandbox.python_grants(zone, ROOT / "stages")
        return replace(
            grants, read=(*grants.read, self.dep), write=(self.staging,), canary=self.raw, **changes
        )

    def run(self, code: str, wanted: frozenset[layers.Layer] = layers.ALL, **changes: Any) -> sandbox.Outcome:
        """Run `code`; what it printed is in `output`."""
        options: dict[str, Any] = {
            "pass_fds": {},
            "timeout": 120,
            "watch": [self.raw, self.dep],
            "cwd": self.base,
            **changes,
        }
        grants = options.pop("grants", None) or self.grants()
        argv = options.pop("argv", [sys.executable, "-c", code])
        with tempfile.TemporaryFile() as output:
            outcome = sandbox.run(
                argv, grants, wanted, stdout=output, stderr=output, scratch=self.base / "scratch", **options
            )
            output.seek(0)
            self.output = output.read().decode()
        return outcome


@contextmanager
def cell() -> Iterator[Cell]:
    """Outside pytest's own folders, which no other user could enter; on tmpfs, as in a real run."""
    base = Path(
        tempfile.mkdtemp(prefix="airlock-cell-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    ).resolve()
    try:
        yield Cell(base)
    finally:
        shutil.rmtree(base)
