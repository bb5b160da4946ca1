"""The file itself: a zip archive that is determined by what is in it.

Members are sorted, stored without compression and without times, so that the same files give the same bytes
on every machine and every byte of the archive has one right value.
"""

from __future__ import annotations

import filecmp
import re
import shutil
import tempfile
import zipfile
from pathlib import Path

from airlock.errors import BundleError, InputError
from airlock.files import replacing
from airlock.inside.digests import walk

_MODE = 0o100644 << 16
_UNIX = 3
# No bundle comes near; a folder deeper than this breaks the programs that walk it.
FILES, NAME, LEVELS = 100_000, 512, 32
# One part of a name: what every system and every reader takes for the same. Letters that look like others, or are
# written in two ways, would put a second `data` beside the one that is checked.
_PART = re.compile(r"""[A-Za-z0-9_.+@=,~!#$%&'()\[\]{}^ -]{0,254}[A-Za-z0-9_+@=,~!#$%&'()\[\]{}^-]""")


def pack(folder: Path, target: Path) -> None:
    """Write everything below `folder` to `target`, all of it or nothing.

    Raises:
        BundleError: naming the file whose name others would not read as it is meant.
    """
    names = [name for name, _ in walk(folder)]
    for name in names:
        if not is_plain(name):
            raise BundleError(f"{name!r} cannot be bundled: use plain letters (ASCII) in names of files")
    if len({name.lower() for name in names}) < len(names):
        raise BundleError("two files differ in small and capital letters only: rename one of them")
    with replacing(target) as fresh, zipfile.ZipFile(fresh, "w", zipfile.ZIP_STORED) as archive:
        for name, path in walk(folder):
            member = zipfile.ZipInfo(name)
            member.create_system, member.external_attr = _UNIX, _MODE
            member.file_size = path.stat().st_size
            with path.open("rb") as source, archive.open(member, "w") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)


def unpack(bundle: Path, folder: Path) -> None:
    """Write all members below `folder`, which is empty.

    Raises:
        InputError: there is no such file.
        BundleError: naming the member that was changed, or saying that the archive around the members was.
    """
    if not bundle.is_file():
        raise InputError(f"no bundle at {bundle}: name the file that `airlock bundle` wrote")
    try:
        with zipfile.ZipFile(bundle) as archive:
            members = archive.infolist()
            _check_members(bundle, members)
            if changed := archive.testzip():
                raise BundleError(f"{changed} was changed after the bundle was made")
            for member in members:
                _write(archive, member, folder / member.filename)
    except BundleError:
        raise
    except Exception as error:  # a damaged archive makes zipfile fail in any way
        raise BundleError(
            f"{bundle.name} is not a whole bundle: it was cut or changed ({type(error).__name__})"
        ) from None
    with tempfile.TemporaryDirectory(dir=folder.parent) as beside:
        again = Path(beside) / "again.zip"
        pack(folder, again)
        if not filecmp.cmp(bundle, again, shallow=False):
            raise BundleError(
                f"{bundle.name}: its archive was changed outside of its files (headers, order or added bytes)"
            )


def is_plain(name: str) -> bool:
    """Whether a name leads below, and is the same to every reader."""
    return all(_PART.fullmatch(part) for part in name.split("/"))


def _check_members(bundle: Path, members: list[zipfile.ZipInfo]) -> None:
    """Before anything is written: plain relative names, each once and not deep, no member larger than the
    file around it.
    """
    names = [member.filename for member in members]
    stored = all(
        member.compress_type == zipfile.ZIP_STORED and member.compress_size == member.file_size
        for member in members
    )
    if (
        not all(map(is_plain, names))
        or not stored
        or len({name.lower() for name in names}) != len(names)
        or len(names) > FILES
        or any(len(name) > NAME or name.count("/") > LEVELS for name in names)
        or sum(member.file_size for member in members) > bundle.stat().st_size
    ):
        raise BundleError(
            f"{bundle.name}: its list of files was changed, or `airlock bundle` did not make it"
        )


def _write(archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(member) as source, target.open("xb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
