"""DVC, which runs unconfined: what it may be started on, and where it keeps what it reads with pickle."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest

from airlock.errors import BoundaryError
from airlock.owner.home import project
from airlock.run import dvc

PLAIN = "[core]\n    analytics = false\n"
PIPELINE = """stages:
  train:
    cmd: {command}
    meta: {{zone: open}}
    deps: [stages]
    outs: [{{data/model: {{remote: released}}}}]
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As little of a workspace as DVC and the check need, as on a machine where nobody has chosen anything."""
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(dvc.VARIABLE, raising=False)
    work = tmp_path / "work"
    for folder in (".dvc", "data", "stages"):
        (work / folder).mkdir(parents=True)
    (work / ".dvc/config").write_text(PLAIN)
    subprocess.run(["git", "init", "-q"], cwd=work, check=True)
    (work / "data/project.json").write_text('{"id": "clinic", "version": 1}\n')
    (work / "params.yaml").write_text("dataset: wdbc\n")
    (work / "stages/__init__.py").write_text("")
    (work / "dvc.yaml").write_text(PIPELINE.format(command="airlock run train"))
    return work


def everybody_may_write(folder: Path) -> bool:
    """Whether any user can exchange what lies in a folder, or the folder itself."""
    return any(
        place.stat().st_mode & 0o002 and not place.stat().st_mode & 0o1000
        for place in (folder, folder.parent)
    )


def test_no_other_user_can_exchange_what_dvc_reads_with_pickle(work: Path) -> None:
    """Another user who did so ran a command as the owner, at the owner's next `dvc pull` or `dvc checkout`."""
    from dvc.repo import Repo

    def folder() -> Path:
        with Repo(str(work)) as repo:
            return Path(repo.site_cache_dir)

    (work / ".dvc/config").write_text(f"{PLAIN}    site_cache_dir = ../../shared\n")
    assert everybody_may_write(folder()), "the control: so DVC makes it where nobody says otherwise"
    (work / ".dvc/config").write_text(PLAIN)
    dvc.keep_notes(project(work), work)
    assert project(work).dvc in folder().parents
    assert stat.S_IMODE(project(work).dvc.stat().st_mode) == 0o700
    assert dvc.environment(work)[dvc.VARIABLE] == str(project(work).dvc)


def test_a_folder_that_was_chosen_stays_and_secrets_stay_private(work: Path) -> None:
    local = work / ".dvc/config.local"
    local.write_text("['remote \"released\"']\n    password = secret\n")
    local.chmod(0o600)
    dvc.keep_notes(project(work), work)
    text = local.read_text()
    assert "password = secret" in text and str(project(work).dvc) in text
    assert stat.S_IMODE(local.stat().st_mode) == 0o600
    local.write_text(text.replace(str(project(work).dvc), "/another/home/clinic/dvc"))
    dvc.keep_notes(project(work), work)
    assert local.read_text() == text, "AIRLOCK_HOME was moved"
    local.write_text(chosen := "[core]\n    site_cache_dir = /elsewhere\n")
    dvc.keep_notes(project(work), work)
    assert local.read_text() == chosen
    local.unlink()
    local.symlink_to(work / "elsewhere")
    with pytest.raises(BoundaryError, match=r"config\.local"):
        dvc.keep_notes(project(work), work)
    assert not (work / "elsewhere").exists()


def test_dvc_is_started_on_no_pipeline_that_goes_around_the_runner(work: Path) -> None:
    """`airlock evaluate`, `nights run`, `bounds` and Python's `airlock.release` started it on whatever was there."""
    trace = work.parent / "trace"
    (work / "dvc.yaml").write_text(PIPELINE.format(command=f"touch {trace}"))
    with pytest.raises(BoundaryError, match="goes around the runner"):
        dvc.run(work, "repro", quiet=True)
    assert not trace.exists()
    environment = {**os.environ, dvc.VARIABLE: str(work.parent / "notes")}
    subprocess.run(dvc.command("repro"), cwd=work, env=environment, check=False, capture_output=True)
    assert trace.exists(), "the control: DVC itself runs it"


def test_dvc_is_started_with_no_settings_that_are_not_followed(work: Path) -> None:
    (work / ".dvc/config").write_text("[core]\n    site_cache_dir = ../theirs\n")
    with pytest.raises(BoundaryError, match="site_cache_dir"):
        dvc.run(work, "status", quiet=True)
    assert not (work / "theirs").exists()
    (work / ".dvc/config").write_text(PLAIN)
    assert dvc.run(work, "status", quiet=True).returncode == 0, "the control"


@pytest.mark.parametrize("name", ["Jürgen", "two\nlines", "%(x)s"])
def test_dvc_is_told_of_no_folder_whose_name_its_settings_cannot_hold(
    work: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one in them `airlock hand-over` failed: DVC wrote no setting beside it any more."""
    modify = ("remote", "modify", "--local", "released", "url", "/srv/clinic")
    (work / ".dvc/config").write_text(f"{PLAIN}['remote \"released\"']\n    url = ../there\n")
    dvc.keep_notes(project(work), work)
    assert "site_cache_dir" in (work / ".dvc/config.local").read_text(), "the control"
    monkeypatch.setenv("AIRLOCK_HOME", str(work.parent / name / "home"))
    dvc.keep_notes(project(work), work)
    assert "site_cache_dir" not in (work / ".dvc/config.local").read_text(), "nor of the one before"
    assert dvc.run(work, *modify, quiet=True).returncode == 0
    assert dvc.environment(work)[dvc.VARIABLE] == str(project(work).dvc)


def test_a_home_that_was_moved_is_followed_before_a_stage_is_run(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DVC does not start where it cannot make the old folder again, and a stage that follows needs DVC."""
    dvc.keep_notes(project(work), work)
    (work.parent / "home").rename(work.parent / "moved")
    (work.parent / "home").write_text("another disk")
    monkeypatch.setenv("AIRLOCK_HOME", str(work.parent / "moved"))

    def status() -> int:
        return subprocess.run(dvc.command("status"), cwd=work, check=False, capture_output=True).returncode

    assert status() != 0, "the control"
    assert dvc.run(work, "status", quiet=True).returncode == 0
    assert status() == 0
