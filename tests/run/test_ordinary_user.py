"""What stands around the wall, attacked by somebody who is not root: the same tests, run as nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import BIN, ROOT

DISGUISE = ROOT / "tests/wall/attacks/disguise.py"
NOBODY = 65534
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
)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become nobody; others have just run them")
def test_the_attacks_around_the_wall_are_stopped_for_an_ordinary_user_too(tmp_path: Path) -> None:
    own = tmp_path / "nobody"
    own.mkdir()
    os.chown(own, NOBODY, NOBODY)
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(folder.stat().st_mode | 0o011)
    (own / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
    kept = {name: os.environ[name] for name in ("LANG", "AIRLOCK_DATA_HOME") if name in os.environ}
    options = ("-o", "addopts=", "-q", "--import-mode=importlib", "-p", "no:cacheprovider")
    command = [str(BIN / "pytest"), *options, *ATTACKS]
    done = subprocess.run(
        [sys.executable, str(DISGUISE), *command],
        cwd=ROOT,
        env={**kept, "HOME": str(own), "TMPDIR": str(own), "PATH": f"{BIN}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
