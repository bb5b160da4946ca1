"""`airlock demo`: the way of somebody's own records, from a raw file to predictions, in front of your eyes."""

from __future__ import annotations

from pathlib import Path

import typer

# Every line is run as it stands, in a new workspace beside the records.
STEPS = (
    "airlock init ../patients.csv --name clinic --label readmitted --bounds-from ../dictionary.csv",
    "airlock init --confirm clinic",
    "airlock add ../patients.csv --name clinic --epsilon 3 --delta 1e-5",
    "airlock data use clinic --private-holdout",
    "airlock budget plan",
    "dvc repro --quiet",
    "airlock evaluate",
    "airlock predict data/model ../new.csv",
    "airlock audit",
)


def command(
    folder: Path | None = typer.Argument(
        None, help="Keep everything in this new folder; otherwise nothing stays."
    ),
) -> None:
    """Walk from a raw file of (simulated) patients to predictions: nine commands, run for real, in a minute or two.

    Keys and ledger of the walk lie beside its workspace; yours are not touched.

    Example: airlock demo
    """
    import contextlib
    import tempfile

    from airlock.errors import InputError

    if folder is not None and folder.exists():
        raise InputError(f"{folder} exists already: give a new folder")
    with contextlib.ExitStack() as stack:
        if folder is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="airlock-demo-")))
        else:
            folder.mkdir(parents=True)
            place = folder.absolute()
        _walk(place)
    if folder is not None:
        typer.echo(f"All of it is in {folder}: workspace/, home/ (AIRLOCK_HOME) and the records.")


def _walk(place: Path) -> None:
    import os
    import shlex
    import shutil
    import subprocess
    import sys

    from airlock.errors import StageFailed
    from airlock.workspaces.creation import create

    for file in Path(__file__).parents[1].joinpath("workspaces/demo").iterdir():
        shutil.copyfile(file, place / file.name)
    workspace = place / "workspace"
    create(workspace)
    environment = {
        **os.environ,
        "AIRLOCK_HOME": str(place / "home"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "DVC_NO_ANALYTICS": "1",
    }
    environment.pop("AIRLOCK_LEDGER_URL", None)
    for step in STEPS:
        typer.secho(f"$ {step}", bold=True)
        done = subprocess.run(shlex.split(step), cwd=workspace, env=environment, check=False)
        if done.returncode != 0:
            raise StageFailed(f"`{step}` ended with {done.returncode}: its lines above say why")
        typer.echo()
