"""Where raw records are: a file, a folder of Parquet parts, or either of them at any address that fsspec
reaches.

No stage has a network. What is elsewhere is copied into a private folder before `ingest` starts, and removed
after it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from airlock.errors import InputError

PARQUET = (".parquet", ".pq")
CHUNK = 1 << 20
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class PlacePart:
    """One file of a place; its name is relative to the place, and empty where the place is that file."""

    name: str
    open: Callable[[], IO[bytes]]


def is_remote(place: str) -> bool:
    """Whether a place is an address instead of a path of this machine."""
    return ("://" in place or "::" in place) and not place.startswith("file://")


def absolute(place: str) -> str:
    """A place as it can be found again from any folder."""
    return place if is_remote(place) else str(Path(place.removeprefix("file://")).resolve())


def parts_of(place: str) -> list[PlacePart]:
    """The files of a place, in the order of their names. In a folder these are its Parquet files, at any
    depth.

    Raises:
        InputError: there are none, or the place cannot be reached.
    """
    with _plain_errors(place):
        system, path = _reach(place)
        if not _is_folder(system, path, place):
            return [PlacePart("", lambda: system.open(path, "rb"))]
        names = sorted(name for name in system.find(path) if _is_part(name.removeprefix(path)))
    if not names:
        raise InputError(
            f"no Parquet files were found in {shown(place)}: name a file, or the folder of its .parquet parts"
        )
    return [
        PlacePart(name.removeprefix(path).lstrip("/"), partial(system.open, name, "rb")) for name in names
    ]


@contextmanager
def at_hand(place: str, spool: Path, progress: Progress = lambda done, total: None) -> Iterator[Path]:
    """The place as a local path: itself, or a copy in `spool` that is gone afterwards."""
    if not is_remote(place):
        yield Path(absolute(place))
        return
    try:
        yield fetch(place, spool, progress)
    finally:
        shutil.rmtree(spool, ignore_errors=True)


def fetch(place: str, folder: Path, progress: Progress = lambda done, total: None) -> Path:
    """Copy the files of a place into a folder that only its owner can open."""
    parts = parts_of(place)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for done, part in enumerate(parts):
        progress(done, len(parts))
        target = folder / (part.name or Path(place.rstrip("/")).name)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _plain_errors(place), part.open() as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, CHUNK)
    progress(len(parts), len(parts))
    return folder if parts[0].name else target


def shown(place: str) -> str:
    """A place for a message: an address may carry a password, so only its kind and last name are shown."""
    return (
        f"{place.split('://')[0]}://…/{place.rstrip('/').rsplit('/', 1)[-1]}" if is_remote(place) else place
    )


def _reach(place: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    return url_to_fs(place)  # type: ignore[no-any-return]


def _is_folder(system: Any, path: str, place: str) -> bool:
    # Over HTTP nothing tells a folder from a page, so there a folder ends with a slash.
    return place.endswith("/") or (not place.startswith("http") and bool(system.isdir(path)))


def _is_part(name: str) -> bool:
    """Spark and others put notes for themselves beside the parts; their names begin with a mark."""
    return name.lower().endswith(PARQUET) and not any(
        piece.startswith(("_", ".")) for piece in name.strip("/").split("/")
    )


@contextmanager
def _plain_errors(place: str) -> Iterator[None]:
    """Errors of a hundred libraries as one line, which does not
    repeat the address: it may carry a password.
    """
    try:
        yield
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(
            f"{shown(place)} cannot be read (no such file or directory): check the path"
        ) from None
    except ImportError as error:
        package = error.name or getattr(error.__cause__, "name", None)
        what = f"the package '{package}'" if package else "the package of its protocol"
        raise InputError(f"{shown(place)} needs {what}: install it beside airlock") from None
    except Exception as error:
        if str(error).startswith("Protocol not known"):  # as fsspec says it
            raise InputError(
                f"{shown(place)} cannot be read (no kind of address that is known): give a path, s3://, gs://, https://"
            ) from None
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise InputError(
            f"{shown(place)} cannot be read ({str(reason).lower()}): check the address and your access to it"
        ) from None
