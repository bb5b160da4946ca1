"""`airlock worker`: join a Dask cluster with a worker that computes behind the wall."""

from __future__ import annotations

from pathlib import Path

import typer


def command(
    address: str = typer.Argument(help="The scheduler: tls://HOST:PORT."),
) -> None:
    """Work for `release.engine: dask`: start one per core, with the project's keys and data/sealed.

    It needs certificates too (`airlock keys dask`). Example: airlock worker tls://scheduler.example.org:8786
    """
    from airlock.run.dask_broker import check_address

    check_address(address, "airlock worker")
    from airlock.run.dask_worker import serve

    serve(address, Path.cwd())
