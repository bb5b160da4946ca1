"""Only declared, plain files of their own leave a stage, and nothing of them but their bytes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from airlock.errors import BoundaryError
from airlock.run.outs import publish


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    folder = tmp_path / "staging"
    (folder / "data" / "out").mkdir(parents=True)
    (folder / "data" / "out" / "a.bin").write_bytes(b"new")
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace" / "data" / "out").mkdir(parents=True)
    (tmp_path / "workspace" / "data" / "out" / "old.bin").write_bytes(b"old")
    (tmp_path / "raw").write_text("secret")
    return tmp_path / "workspace"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_replaces_the_whole_folder_and_empties_staging(staging: Path, workspace: Path) -> None:
    publish(staging, ["data/out"], workspace)
    assert contents(workspace) == {"data/out/a.bin": b"new"}
    assert list(staging.iterdir()) == []


def test_publishes_a_file_over_a_file_and_into_a_new_folder(staging: Path, workspace: Path) -> None:
    (workspace / "metric.json").write_text("old")
    (staging / "metric.json").write_text("1")
    (staging / "new").mkdir()
    (staging / "new" / "plot.csv").write_text("2")
    publish(staging, ["metric.json", "new/plot.csv"], workspace)
    assert (workspace / "metric.json").read_text() == "1"
    assert (workspace / "new" / "plot.csv").read_text() == "2"


def test_drops_what_was_not_declared(staging: Path, workspace: Path) -> None:
    (staging / "data" / "extra").write_text("x")
    publish(staging, ["data/out"], workspace)
    assert not (workspace / "data" / "extra").exists()


def test_strips_modes(staging: Path, workspace: Path) -> None:
    (staging / "data" / "out" / "a.bin").chmod(0o6777)
    publish(staging, ["data/out"], workspace)
    assert stat.S_IMODE((workspace / "data" / "out" / "a.bin").stat().st_mode) == 0o644


def test_leaves_extended_attributes_behind(staging: Path, workspace: Path) -> None:
    source = staging / "data" / "out" / "a.bin"
    try:
        os.setxattr(source, "user.hidden", b"value")
    except OSError:
        pytest.skip("no extended attributes on this file system")
    publish(staging, ["data/out"], workspace)
    assert os.listxattr(workspace / "data" / "out" / "a.bin") == []


def link_file(staging: Path, raw: Path) -> None:
    (staging / "data" / "out" / "b").symlink_to(raw)


def link_out(staging: Path, raw: Path) -> None:
    (staging / "data" / "out" / "a.bin").unlink()
    (staging / "data" / "out").rmdir()
    (staging / "data" / "out").symlink_to(raw)


def link_parent(staging: Path, raw: Path) -> None:
    (staging / "data").rename(staging / "elsewhere")
    (staging / "data").symlink_to("elsewhere")


def hard_link(staging: Path, raw: Path) -> None:
    (staging / "data" / "out" / "b").hardlink_to(raw)


def pipe(staging: Path, raw: Path) -> None:
    os.mkfifo(staging / "data" / "out" / "b")


@pytest.mark.parametrize("trick", [link_file, link_out, link_parent, hard_link, pipe])
def test_refuses_anything_but_plain_files_and_changes_nothing(
    trick: object, staging: Path, workspace: Path, tmp_path: Path
) -> None:
    trick(staging, tmp_path / "raw")  # type: ignore[operator]
    with pytest.raises(BoundaryError, match="data/out"):
        publish(staging, ["data/out"], workspace)
    assert contents(workspace) == {"data/out/old.bin": b"old"}
    assert list(staging.iterdir()) == []


def test_one_refused_out_keeps_the_others_back(staging: Path, workspace: Path) -> None:
    (staging / "second").symlink_to("/etc/passwd")
    with pytest.raises(BoundaryError, match="second"):
        publish(staging, ["data/out", "second"], workspace)
    assert contents(workspace) == {"data/out/old.bin": b"old"}


@pytest.mark.parametrize("out", ["missing", "data/missing"])
def test_a_missing_out_is_an_error(out: str, staging: Path, workspace: Path) -> None:
    with pytest.raises(BoundaryError, match="did not make"):
        publish(staging, [out], workspace)


@pytest.mark.parametrize("out", ["../raw", "/etc/passwd", "data/../../raw"])
def test_an_out_outside_the_workspace_is_refused(out: str, staging: Path, workspace: Path) -> None:
    with pytest.raises(BoundaryError, match="not inside"):
        publish(staging, [out], workspace)


def test_closed_modes_of_a_stage_do_not_stop_it(staging: Path, workspace: Path) -> None:
    (staging / "data" / "out" / "a.bin").chmod(0)
    (staging / "data" / "out").chmod(0)
    publish(staging, ["data/out"], workspace)
    assert contents(workspace) == {"data/out/a.bin": b"new"}
