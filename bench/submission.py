"""The worked example of docs/submissions.md: a paper's table, every figure of which comes from one bundle.

    python -m bench.submission FOLDER         a clone in FOLDER, one commit a row, one bundle, the page docs/example.md
    python -m bench.submission FOLDER wdbc    the rows of one data set only

It goes on where it stopped. Rows are runs of the ordinary pipeline with other parameters; epochs are cut to
what a laptop does in minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/example.md"
EPSILONS = {"wdbc": 1.0, "mnist": 0.5}
# Mechanism and what differs from its defaults; the papers' own settings where a preset has them.
ROWS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "wdbc": [
        ("coefficients", {}),
        ("coefficients-iterated", {}),
        ("neuron-allocation", {}),
        ("dp-sgd", {}),
        ("ellipsoid-noise", {}),
        ("optimized-noise", {}),
        ("dp-mac", {}),
        ("adlm", {}),
        ("ilm", {}),
        ("neuron-noise", {"setting": "wdbc", "epochs": 3}),
    ],
    "mnist": [
        ("coefficients", {}),
        ("coefficients-iterated", {}),
        ("patch-moments", {}),
        ("neuron-allocation", {}),
        ("dp-sgd", {"epochs": 3, "learning_rate": 2.0}),
        ("ellipsoid-noise", {"epochs": 3}),
        ("optimized-noise", {"preset": "paper-mnist", "epochs": 3}),
        ("dp-mac", {"preset": "authors-mnist", "epochs": 3}),
        ("adlm", {"preset": "paper-literal", "pretraining_epochs": 1}),
        ("pcdbn", {"preset": "authors-code", "maps": [8, 8], "epochs": 5, "pretraining_epochs": 1}),
    ],
}
TRAINING = {"adlm": {"epochs": 1}}


@dataclass(frozen=True)
class Clone:
    """A clone with a home of its own, so that no budget is touched but its own scratch ledger's."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(cls, folder: Path) -> Clone:
        """A fresh one, or the one that is there."""
        home = folder.resolve() / "home"
        home.mkdir(parents=True, exist_ok=True)
        settings = {
            "HOME": str(home),
            "AIRLOCK_HOME": str(home / "airlock"),
            "DVC_NO_ANALYTICS": "1",
            "GIT_CONFIG_COUNT": "2",
        }
        settings |= {
            "GIT_CONFIG_KEY_0": "user.name",
            "GIT_CONFIG_VALUE_0": "example",
            "GIT_CONFIG_KEY_1": "user.email",
        }
        settings |= {
            "GIT_CONFIG_VALUE_1": "example@example.org",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        # The clone's own code on both sides of the wall, whatever is edited here meanwhile.
        settings["PYTHONPATH"] = str(folder.resolve() / "work")
        made = cls(folder.resolve() / "work", {**os.environ, **settings})
        if not made.folder.exists():
            subprocess.run(["git", "clone", "-q", str(ROOT), str(made.folder)], check=True)
        return made

    def run(self, *command: str) -> str:
        """Run a command in the clone; what it prints on stderr is seen at once."""
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout

    def commits(self) -> dict[str, str]:
        """Commits by their subject."""
        lines = self.run("git", "log", "--format=%H %s").splitlines()
        return {subject: commit for commit, subject in (line.split(" ", 1) for line in reversed(lines))}


def main() -> None:
    """Make the rows, the bundle and the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("dataset", nargs="*", choices=[*ROWS, []])
    asked = parser.parse_args()
    clone = Clone.make(asked.folder)
    wanted = [row for row in rows() if not asked.dataset or row[0] in asked.dataset]
    for number, (dataset, mechanism, options) in enumerate(wanted, start=1):
        print(f"[{number}/{len(wanted)}] {dataset} {mechanism}", file=sys.stderr, flush=True)
        make_row(clone, dataset, mechanism, options)
    bundle = asked.folder.resolve() / "paper.zip"
    known = clone.commits()
    revisions = [part for row in wanted for part in ("--rev", known[subject(*row[:2])])]
    clone.run("airlock", "bundle", *revisions, "--output", str(bundle))
    verdict = json.loads(clone.run("airlock", "verify", str(bundle), "--quick", "--json"))
    PAGE.write_text(page(bundle, verdict))


def rows() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every row: data set, mechanism, options."""
    return (
        (dataset, mechanism, options) for dataset, listed in ROWS.items() for mechanism, options in listed
    )


def subject(dataset: str, mechanism: str) -> str:
    """The commit of a row."""
    return f"Release {dataset} by {mechanism}"


def make_row(clone: Clone, dataset: str, mechanism: str, options: dict[str, Any]) -> None:
    """Run the pipeline with a row's parameters and commit what it made; a row that is committed already
    stays.
    """
    if subject(dataset, mechanism) in clone.commits():
        return
    if not (clone.folder / f"data/handles/{dataset}").exists():
        clone.run("airlock", "data", "fetch", dataset)
        clone.run(
            "airlock",
            "budget",
            "set",
            dataset,
            "--epsilon",
            "100",
            "--delta",
            "1e-5",
            "--why",
            "a table of public data",
        )
    file = clone.folder / "params.yaml"
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    params["dataset"] = dataset
    params["release"] |= {"mechanism": mechanism, "epsilon": EPSILONS[dataset], "options": options}
    params["train"] |= TRAINING.get(mechanism, {})
    file.write_text(yaml.safe_dump(params, sort_keys=False))
    clone.run("dvc", "repro", "-q")
    clone.run("git", "add", "-A")
    clone.run("git", "commit", "-q", "-m", subject(dataset, mechanism))


def page(bundle: Path, verdict: dict[str, Any]) -> str:
    """docs/example.md: the table as the bundle gives it, and how to check it."""
    from airlock.bundle.results import Result, markdown
    from airlock.inside.digests import sha256_path

    results = [
        Result(**{**one, "proven": float(one["proven"]), "claimed": _number(one["claimed"])})
        for one in verdict["results"]
    ]
    return TEMPLATE.format(
        table=markdown(results),
        size=f"{bundle.stat().st_size / 1e6:.0f}",
        digest=sha256_path(bundle),
        key=verdict["key"],
        rows=len(results),
    )


def _number(value: float | str | None) -> float | None:
    return None if value is None else float(value)


TEMPLATE = """# A table that can be checked

Made by `python -m bench.submission FOLDER` from one bundle; do not edit. Each of the {rows} rows is a \
commit of the ordinary
pipeline with other parameters: the mechanisms of five papers, DP-SGD, and Airlock's own.

{table}
`claimed ε` is the paper's, `proven ε` follows from the released bytes (inf: nothing finite does; such a \
release is made of
public data only), `passes` is how often the records were read.

The bundle has {size} MB (some releases hold a noisy copy of every image), so it is not in git. SHA-256 `{digest}`,
owner's key `{key}`. The reader's check of every figure above, without records, keys or
network, which runs every training again:

    airlock verify paper.zip --key {key}

It is one run of each mechanism on one split, with few epochs for those that read the records at every step \
(see each row's
options): it shows that figures can be checked, not which mechanism is better. `pcdbn` and `patch-moments` \
are for images;
`neuron-noise` on MNIST takes too long for an example (docs/papers.md has it). For that see \
[benchmarks.md](benchmarks.md) and
[papers.md](papers.md). To make such a bundle of your own (other keys, so another split, other noise and \
other figures): the
command in the first line, or [submissions.md](submissions.md) step by step.
"""


if __name__ == "__main__":
    main()
