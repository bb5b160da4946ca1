"""`airlock keys`: back up, restore and rotate the keys of a project, and admit those of others."""

from __future__ import annotations

import os
from pathlib import Path

import typer

app = typer.Typer(
    help="Back up, restore and rotate this project's keys, and admit others.\n\nExample: airlock keys "
    "backup clinic.keys",
    no_args_is_help=True,
)


@app.command()
def backup(file: Path = typer.Argument(help="Where to write the encrypted copy; must not exist.")) -> None:
    """Write all keys to one file, encrypted with a passphrase (AIRLOCK_PASSPHRASE, or asked for).

    Example: airlock keys backup clinic.keys
    """
    from airlock.owner import key_backup
    from airlock.owner.home import project

    key_backup.backup(project(Path.cwd()), file, _passphrase(confirm=True))
    typer.echo(
        f"keys written to {file}: keep it apart from the data, and the passphrase apart from it; back up "
        "the ledger too (docs/keys.md)"
    )


@app.command()
def restore(file: Path = typer.Argument(help="A file that `airlock keys backup` wrote.")) -> None:
    """Put backed-up keys in place. Keys that are here already are never overwritten by others.

    Example: airlock keys restore clinic.keys
    """
    from airlock.owner import key_backup
    from airlock.owner.home import project

    generations = key_backup.restore(project(Path.cwd()), file, _passphrase(confirm=False))
    typer.echo(
        f"keys restored, {generations} generation{'s' * (generations > 1)}; raw files are found again by "
        "`airlock add`"
    )


@app.command()
def rotate() -> None:
    """Start a new key generation for seals and noise; older ones stay, to open what they sealed.

    Example: airlock keys rotate
    """
    from airlock.owner import key_backup
    from airlock.owner.home import project

    generation = key_backup.rotate(project(Path.cwd()))
    typer.echo(f"generation {generation} is in force: back up the keys again (airlock keys backup FILE)")
    typer.echo("  sealed files keep their old key until they are made again: dvc repro --force ingest")


@app.command()
def admit(
    key: str = typer.Argument(help="A public key, 64 hexadecimal digits; `airlock audit` shows who signed."),
    zone: list[str] = typer.Option(["open"], "--zone", help="What it may sign for; repeat for several."),
) -> None:
    """Let another machine's key sign receipts, on the owner's machine. Commit receipts/policy.json
    afterwards.

    Example: airlock keys admit 3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29
    """
    _sign_policy(key, tuple(zone))


@app.command()
def dismiss(
    key: str = typer.Argument(help="A public key that was admitted; receipts it has signed count no longer."),
) -> None:
    """Take back what `admit` gave, on the owner's machine. Commit receipts/policy.json afterwards; an older
    list is not believed here any more.

    Example: airlock keys dismiss 3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29
    """
    _sign_policy(key, ())


def _sign_policy(key: str, zones: tuple[str, ...]) -> None:
    from airlock.evidence import policy
    from airlock.owner.home import newest_policy, note_policy, project
    from airlock.owner.keys import Keyring

    place = project(Path.cwd())
    signer = Keyring.load(place).signer
    found = policy.admit(Path.cwd(), signer, key, zones, newest=newest_policy(place))
    note_policy(place, found.serial)
    typer.echo(f"{len(found.admitted)} keys may sign beside the owner's: commit {policy.POLICY}")


@app.command()
def dask(
    renew: bool = typer.Option(False, "--renew", help="Replace the certificates that are there."),
) -> None:
    """Make the certificates of a Dask cluster, without which none is used: scheduler, worker, client.

    Example: airlock keys dask
    """
    from airlock.owner import certificates
    from airlock.owner.home import project

    home = project(Path.cwd())
    end, found = certificates.make(home, renew=renew), certificates.of(home)
    files = f"--tls-ca-file {found.authority} --tls-cert {found.certificate('scheduler')}"
    typer.echo(f"certificates are in {found.folder}, yours alone to read, valid until {end:%Y-%m-%d}")
    typer.echo("  start a scheduler and, once per core, a worker; then set release.address in params.yaml:")
    typer.echo(
        f"    dask scheduler --protocol tls --host 127.0.0.1 --port 8786 --no-dashboard {files} "
        f"--tls-key {found.key('scheduler')}"
    )
    typer.echo("    airlock worker tls://127.0.0.1:8786")
    typer.echo(
        "  a worker elsewhere needs ca.pem, worker.pem and worker.key in the same folder (docs/scale.md)"
    )


def _passphrase(*, confirm: bool) -> str:
    from airlock.errors import InputError

    if given := os.environ.get("AIRLOCK_PASSPHRASE"):
        return given
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:  # what is typed would be seen, or nobody types
        raise InputError(
            "there is no terminal to ask for the passphrase on: give it in AIRLOCK_PASSPHRASE"
        ) from None
    return str(typer.prompt("Passphrase", hide_input=True, confirmation_prompt=confirm))
