"""`airlock worker`: join a Dask cluster with a worker that computes behind the wall."""

from __future__ import annotations

from pathlib import Path

import typer


def command(
    address: str = typer.Argument(
        help="The scheduler: tls://HOST:PORT, or tcp://127.0.0.1:PORT on this machine."
    ),
) -> None:
    """Work for `release.engine: dask`. Needs the project's keys and a copy of data/sealed; start one per core.

    Example: airlock worker tls://scheduler.example.org:8786
    """
    from airlock.run.dask_broker import check_address

    check_address(address, "airlock worker")
    from airlock.run.dask_worker import serve

    serve(address, Path.cwd())
