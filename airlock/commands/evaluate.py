"""`airlock evaluate`: judge the model on private records, once, by the owner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

NOT_ASKED = (
    "evaluate.holdout is '{holdout}': set it to private in params.yaml and run `dvc repro`, so that a part "
    "of the records is "
    "kept from training; `airlock budget plan` shows the price"
)


def command() -> None:
    """Judge the model on the private records that training did not use: a release of its own, priced and
    noisy.

    It runs owner/dvc.yaml and makes the page again. A model that was judged already is not charged again.

    Example: airlock evaluate
    """
    from airlock.errors import InputError
    from airlock.evidence.evaluation import private_evaluation
    from airlock.params import load_params
    from airlock.records.schema_file import load_schema
    from airlock.run import budget

    params = load_params()
    if params.evaluate.holdout != "private":
        raise InputError(NOT_ASKED.format(holdout=params.evaluate.holdout))
    label = load_schema(Path(f"data/schemas/{params.dataset}.yaml")).label.column
    budget.check_target(params, label)
    _require_owner(Path.cwd())
    _dvc("repro", "report")
    _dvc("repro", "owner/dvc.yaml")
    _dvc("repro", "--single-item", "--force", "report")
    found = private_evaluation(Path.cwd())
    if found is None:
        raise InputError(
            "the evaluation is not of this model: run `dvc repro`, then `airlock evaluate` again"
        )
    typer.echo(_words(found))
    typer.echo(
        f"Price     epsilon {found['epsilon']:.4g}, delta {found['delta']:g}; "
        "`airlock report` and the page show it"
    )


def _require_owner(workspace: Path) -> None:
    from airlock.errors import KeysError
    from airlock.evidence import policy
    from airlock.owner.home import project
    from airlock.owner.keys import signer

    owner = policy.of_workspace(workspace).owner
    if owner and owner != signer(project(workspace)).public_key.hex():
        raise KeysError(
            f"only the owner judges on private records: the key here is not the first in {policy.OWNER_KEY}"
        )


def _words(found: dict[str, Any]) -> str:
    from airlock.terminal import number_words

    if found["accuracy"] is None:
        return f"{number_words(found)} on {found['records']} private records"
    low, high = found["interval"]
    return (
        f"Accuracy  {found['accuracy']:.1%} ({low:.1%} to {high:.1%}) on {found['records']} private records"
    )


def _dvc(*arguments: str) -> None:
    """Run DVC as the owner would; what stages and errors say goes to the terminal."""
    from airlock.errors import RefusedError
    from airlock.run import dvc

    # DVC's --quiet would keep its errors back as well.
    done = dvc.run(Path.cwd(), *arguments, errors_only=True)
    if done.returncode != 0:
        raise RefusedError(f"`dvc {' '.join(arguments)}` failed: its last lines above say why")
