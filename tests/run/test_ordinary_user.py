"""What stands around the wall, attacked by somebody who is not root: the same tests, run as nobody."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import BIN, ROOT

DISGUISE = ROOT / "tests/wall/attacks/disguise.py"
NOBODY = 65534
# In one process: what runs a pipeline first, as nobody, does so once.
ATTACKS = (
    "tests/evidence/test_reader.py",
    "tests/evidence/test_receipts.py",
    "tests/run/test_allowed.py",
    "tests/run/test_around_the_wall.py",
    "tests/run/test_bounds.py",
    "tests/run/test_paths.py",
    "tests/run/test_repository_attacks.py",
    "tests/test_terminal.py",
    "tests/wall/test_cgroups.py",
    "tests/wall/test_identity.py",
    "tests/wall/test_secrecy.py",
    # W2, W13; W3; W8; W10; W12; W16; W17 of docs/threat-model.md
    "tests/test_house.py::test_the_commands_of_the_findings_load_no_hostile_stage",
    "tests/flows/test_doors.py::test_another_user_of_the_machine_cannot_run_a_command",
    "tests/flows/test_doors.py::test_script_in_the_report_cannot_run_a_command",
    "tests/evidence/test_checker.py",
    "tests/bundle/test_verify.py::test_an_invented_figure_is_found",
    "tests/release/test_cluster.py::test_another_user_of_the_machine_cannot_run_a_function",
    "tests/bundle/test_extract.py",
    "tests/release/test_evaluate_private.py::test_an_error_in_the_arithmetic_of_one_record_counts_as_wrong",
)


@pytest.fixture
def own() -> Iterator[Path]:
    """A folder of nobody's, not below pytest's own: every session that root starts closes that one to others."""
    folder = Path(tempfile.mkdtemp(prefix="airlock-nobody-"))
    folder.chmod(0o755)
    os.chown(folder, NOBODY, NOBODY)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.xdist_group("account")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody; others run them as themselves")
def test_the_attacks_are_stopped_for_an_ordinary_user_too(own: Path) -> None:
    (own / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
    kept = {name: os.environ[name] for name in ("LANG", "AIRLOCK_DATA_HOME") if name in os.environ}
    without = [word for name in ("cacheprovider", "hydra_pytest") for word in ("-p", f"no:{name}")]
    options = ("-o", "addopts=", "-q", "-rs", "--import-mode=importlib", *without)
    command = [str(BIN / "pytest"), *options, *ATTACKS]
    done = subprocess.run(
        [sys.executable, str(DISGUISE), str(NOBODY), *command],
        cwd=ROOT,
        env={**kept, "HOME": str(own), "TMPDIR": str(own), "PATH": f"{BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert "somebody else" not in done.stdout, "an attack by another user was left out"
