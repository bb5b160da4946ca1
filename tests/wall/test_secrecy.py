"""A process with a key leaves no core file and is closed to
others; its folder is nobody else's to write to.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from airlock.errors import KeysError
from airlock.owner.home import Project
from airlock.owner.keys import Keyring, signer

PLAIN_CORES = (
    Path("/proc/sys/kernel/core_pattern").read_text().strip() == "core"
    and resource.getrlimit(resource.RLIMIT_CORE)[1] != 0
)
HOLDER = """
import os, resource, signal, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_CORE, (resource.getrlimit(resource.RLIMIT_CORE)[1],) * 2)
from airlock.owner.home import Project
from airlock.owner.keys import signer
if sys.argv[1] == "with":
    signer(Project("x", Path(sys.argv[2])))
death = getattr(signal, sys.argv[3])
signal.signal(death, signal.SIG_DFL)  # whatever started us may have told us to ignore it
os.kill(os.getpid(), death)
"""


def core_files(folder: Path, way: str, death: str) -> list[str]:
    (folder / "work").mkdir()
    command = (
        f'ulimit -c unlimited 2>/dev/null; exec {sys.executable} -c "$0" {way} {folder / "home"} {death}'
    )
    done = subprocess.run(
        ["sh", "-c", command, HOLDER], cwd=folder / "work", capture_output=True, check=False
    )
    assert done.returncode == -getattr(signal, death), done.stderr
    return sorted(path.name for path in (folder / "work").iterdir())


@pytest.mark.parametrize("death", ["SIGQUIT", "SIGSEGV"])
def test_a_process_with_a_key_leaves_no_core(tmp_path: Path, death: str) -> None:
    assert core_files(tmp_path, "with", death) == []


@pytest.mark.skipif(not PLAIN_CORES, reason="cores go elsewhere, or are limited, on this machine")
def test_without_a_key_it_would(tmp_path: Path) -> None:
    """The control: the same process, ended the same way."""
    assert core_files(tmp_path, "without", "SIGQUIT")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project("x", tmp_path / "x")
    made.folder.mkdir(mode=0o700)
    Keyring.create(made)
    return made


def test_keys_in_folders_of_ones_own_are_read(project: Project) -> None:
    """The control of the following ones."""
    assert Keyring.load(project).generation == 1


@pytest.mark.parametrize(
    ("name", "mode"), [(".", 0o777), (".", 0o770), (".", 0o702), ("keys", 0o777), ("keys", 0o755)]
)
def test_keys_in_a_folder_that_others_can_change_are_refused(project: Project, name: str, mode: int) -> None:
    (project.folder / name).chmod(mode)
    for load in (Keyring.load, signer):
        with pytest.raises(KeysError, match="chmod 700"):
            load(project)


def test_keys_behind_a_link_are_refused(project: Project, tmp_path: Path) -> None:
    project.keys.rename(tmp_path / "elsewhere")
    project.keys.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KeysError, match="link"):
        Keyring.load(project)


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders away")
def test_keys_in_another_users_folder_are_refused(project: Project) -> None:
    os.chown(project.keys, 65534, 65534)
    with pytest.raises(KeysError, match="another user"):
        Keyring.load(project)
