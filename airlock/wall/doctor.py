"""What this machine can enforce, and what else matters for keeping records in: the facts behind `airlock
doctor`.
"""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from airlock.wall import cgroups, landlock
from airlock.wall.grants import Grants, unlisted_records
from airlock.wall.layers import ALL, LEFT_OPEN, MEANING, MINIMUM, Layer, probe
from airlock.wall.recorder import record
from airlock.wall.sandbox import trial

_PACKAGES = ("airlock-pipeline", "dvc", "torch", "pyarrow", "numpy")
_SHARED_MEMORY = Path("/dev/shm")
USER = "user"


@dataclass(frozen=True)
class MachineFact:
    """One thing that was looked at.

    Attributes:
        name: what.
        good: whether it is as it should be.
        answer: what was found.
        remedy: what to do where it is not good.
        left_open: what a missing layer leaves open.
    """

    name: str
    good: bool
    answer: str
    remedy: str = ""
    left_open: str = ""


@dataclass(frozen=True)
class Examination:
    """All findings about this machine."""

    layers: tuple[MachineFact, ...]
    surroundings: tuple[MachineFact, ...]
    versions: dict[str, str]

    @property
    def offered(self) -> frozenset[Layer]:
        """The layers that a stage would get."""
        return frozenset(Layer(finding.name) for finding in self.layers if finding.good)

    @property
    def enforcement(self) -> str:
        """The strictest `boundary.enforcement` that this machine can hold."""
        if self.offered == ALL and all(one.good for one in self.surroundings if one.name == USER):
            return "strict"
        return "auto" if self.offered >= MINIMUM else "advisory"


def examine() -> Examination:
    """Look at everything; takes about a second."""
    problems = probe()
    layers = tuple(
        MachineFact(layer, not problem, _answer(layer, problem), problem, LEFT_OPEN[layer] if problem else "")
        for layer, problem in problems.items()
    )
    offered = frozenset(layer for layer, problem in problems.items() if not problem)
    surroundings = (
        *(_recorder(offered), _identity(offered), _limits(), _memory(), _swap(), _core_dumps(), _carriers()),
        _devices(),
    )
    return Examination(layers, surroundings, _versions())


def _answer(layer: Layer, problem: str) -> str:
    return f"not sure that a stage {MEANING[layer]}" if problem else f"yes, a stage {MEANING[layer]}"


def _recorder(offered: frozenset[Layer]) -> MachineFact:
    recorder = record([], Grants(), offered)
    recorder.close()
    return MachineFact(
        "recorder",
        recorder.descriptor >= 0,
        recorder.name,
        "" if recorder.descriptor >= 0 else "raise fs.inotify.max_user_instances",
    )


def _identity(offered: frozenset[Layer]) -> MachineFact:
    """Whether stages get a user number of their own, tried with a stage that tells its own."""
    if os.geteuid() != 0:
        return MachineFact(USER, True, "stages run as this user, without any power to change it")
    if not offered >= {Layer.ROOT, Layer.CAPABILITIES}:
        return MachineFact(
            USER, False, "stages run as root", "run Airlock as an ordinary user, or get a new root"
        )
    user = trial().user
    if user == 0:
        remedy = "use a file system with mapped mounts (ext4, XFS, Btrfs, tmpfs), or an ordinary user"
        answer = "stages run as root, without its powers; receipts say so, and `strict` refuses"
        return MachineFact(USER, False, answer, remedy)
    return MachineFact(USER, True, f"stages run as users of their own that own nothing (now: {user})")


def _limits() -> MachineFact:
    """Tried: a control group is made, and a process moves in."""
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    version, _ = cgroups.offered()
    whole = version != cgroups.NONE
    by = f"of the whole stage ({version})" if whole else "of each process only (rlimits)"
    answer = (
        f"memory and processes {by}, file size of each process, output and time by the runner; memory here: "
        f"{pages:.1f} GiB; set them in params.yaml, boundary"
    )
    remedy = (
        "" if whole else "run under systemd (`systemd-run --user --scope ...`) with cgroup v2, or as root"
    )
    return MachineFact("limits", whole, answer, remedy)


def _memory() -> MachineFact:
    """Where TMPDIR and the staging of release stages go."""
    if (
        _SHARED_MEMORY.is_dir()
        and _file_system(_SHARED_MEMORY) == "tmpfs"
        and os.access(_SHARED_MEMORY, os.W_OK)
    ):
        return MachineFact(
            "temporary files",
            True,
            f"in memory, {shutil.disk_usage(_SHARED_MEMORY).free / 2**30:.1f} GiB free",
        )
    return MachineFact(
        "temporary files", False, "on disk", "mount a tmpfs at /dev/shm (in a container: --shm-size)"
    )


def _swap() -> MachineFact:
    swaps = [line.split()[0] for line in _lines("/proc/swaps")[1:]]
    exposed = [name for name in swaps if "zram" not in name and "/dm-" not in name]
    remedy = (
        "encrypt the swap or switch it off: memory of a stage that sees records may be written there"
        if exposed
        else ""
    )
    return MachineFact("swap", not exposed, ", ".join(swaps) or "none", remedy)


def _core_dumps() -> MachineFact:
    return MachineFact(
        "core dumps",
        True,
        "off for stages and for every process with a key (this machine's pattern: "
        f"{''.join(_lines('/proc/sys/kernel/core_pattern')) or 'unknown'})",
    )


def _carriers() -> MachineFact:
    found = unlisted_records()
    remedy = (
        "an open stage can read these: look whether they are records, and list them in airlock/wall/grants.py"
        if found
        else ""
    )
    return MachineFact(
        "data in packages",
        not found,
        ", ".join(found) or "all known carriers are hidden from open stages",
        remedy,
    )


def _devices() -> MachineFact:
    nodes = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    return MachineFact("GPU", True, ", ".join(nodes) or "none; stages use the CPU")


def _versions() -> dict[str, str]:
    found = {"airlock": _version("airlock-pipeline"), "linux": platform.release()}
    found |= {"machine": platform.machine(), "landlock": str(landlock.version())}
    found["python"] = platform.python_version()
    return found | {package: _version(package) for package in _PACKAGES}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"


def _file_system(path: Path) -> str:
    points = {line.split()[1]: line.split()[2] for line in _lines("/proc/self/mounts")}
    return points.get(str(path), "")


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
