"""DVC experiments in a project of their own, outside this one: public data, no wall, for what is measured is accuracy.

A folder with pipeline.yaml and params.yaml is copied into a new git and DVC project, and each run there is one
`dvc exp run`; `dvc exp show`, `dvc plots show` and `git show` work in it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from airlock.run.leftovers import sweep_workspace

ROOT = Path(__file__).parents[2]
# Memory given back to the kernel after every step is fetched anew in the next: a sixth of the time (glibc;
# others do not look).
ALLOCATION = {"MALLOC_MMAP_THRESHOLD_": str(10**9), "MALLOC_TRIM_THRESHOLD_": str(4 * 10**9)}
ROW, STATE = "row.json", "state"


@dataclass(frozen=True)
class Project:
    """One project of experiments.

    Attributes:
        folder: where it is, or will be.
        source: of pipeline.yaml, which becomes its dvc.yaml, and params.yaml.
        environment: of all that runs in it, beside the usual.
    """

    folder: Path
    source: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        """A git and DVC project with the pipeline and its parameters, if there is none."""
        if (self.folder / ".dvc").exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.copy2(self.source / "pipeline.yaml", self.folder / "dvc.yaml")
        shutil.copy2(self.source / "params.yaml", self.folder / "params.yaml")
        # What a run goes on from is nobody's output: neither git nor DVC moves or removes it.
        (self.folder / ".gitignore").write_text(f"/{STATE}/\n")
        for command in (
            ["git", "init", "-q"],
            ["dvc", "init", "-q"],
            ["git", "add", "-A"],
            ["git", "commit", "-q", "-m", self.source.name.capitalize()],
        ):
            self.call(*command)

    def names(self) -> set[str]:
        """Of the experiments that are finished."""
        return set(self.call("dvc", "exp", "list", "--name-only").split())

    def run(self, name: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """One experiment; its row. What a killed DVC left half-written goes first."""
        sweep_workspace(self.folder)
        (self.folder / "params.yaml").write_text(yaml.safe_dump(dict(asked), sort_keys=False))
        self.call("dvc", "exp", "run", "--name", name)
        row: dict[str, Any] = json.loads((self.folder / ROW).read_text())
        return row

    def rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Names and rows of the finished ones."""
        for ref in self.call("git", "for-each-ref", "--format=%(refname)", "refs/exps").split():
            if ref.count("/") == 4 and "/exec/" not in ref:  # refs/exps/XX/BASELINE/NAME
                yield ref.rsplit("/", 1)[1], json.loads(self.call("git", "show", f"{ref}:{ROW}"))

    def call(self, *command: str) -> str:
        """What a command in the project prints."""
        search = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        author = {
            f"GIT_{who}_{what}": "bench" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
        }
        home = Path(os.environ.get("AIRLOCK_DATA_HOME", "../shared/data")).resolve()
        environment = {
            **ALLOCATION,
            **os.environ,
            **author,
            "PATH": search,
            "PYTHONPATH": str(ROOT),
            "AIRLOCK_DATA_HOME": str(home),
            **self.environment,
        }
        return subprocess.run(
            command, cwd=self.folder, env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
