"""Paths of the workspace are opened once, without links: what was checked and hashed is what a stage sees."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from airlock.errors import BoundaryError
from airlock.inside.digests import md5_path, sha256_path
from airlock.run import paths
from airlock.wall import kernel, layers
from airlock.wall.grants import Grants, Held
from tests.support.small_workspace import SECRET, Cell, cell

OFFERED = layers.choose("advisory", zone="open")
walls = pytest.mark.parametrize(
    "wanted",
    [
        pytest.param(
            wanted, id=name, marks=pytest.mark.skipif(not wanted <= OFFERED, reason="airlock doctor")
        )
        for name, wanted in {
            "full": layers.ALL,
            "no-root": layers.ALL - {layers.Layer.ROOT},
            "minimum": layers.MINIMUM,
        }.items()
    ],
)
ways = pytest.mark.parametrize("way", [kernel.open_beneath, kernel.walk_beneath])
Way = Callable[[int, str], int]


@pytest.fixture
def room() -> Iterator[Cell]:
    with cell() as made:
        yield made


@pytest.fixture
def top(tmp_path: Path) -> Iterator[int]:
    """A workspace with a plain file, and links to a secret beside it."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/key").write_text("key")
    work = tmp_path / "work"
    (work / "data").mkdir(parents=True)
    (work / "data/plain").write_text("plain")
    (work / "data/link").symlink_to(tmp_path / "secret/key")
    (work / "data/inner").symlink_to("plain")
    (work / "folder").symlink_to(tmp_path / "secret")
    (work / "magic").symlink_to(f"/proc/self/root{tmp_path}/secret")
    with paths.opened(os.open(work, os.O_PATH | os.O_DIRECTORY)) as descriptor:
        yield descriptor


@ways
def test_a_plain_path_is_opened(way: Way, top: int) -> None:
    with paths.opened(way(top, "data/plain")) as found:
        assert Path(f"/proc/self/fd/{found}").read_text() == "plain"


@ways
@pytest.mark.parametrize(
    "name",
    [
        "data/link",
        "data/inner",
        "folder",
        "folder/key",
        "magic/key",
        "../secret/key",
        "data/../../secret/key",
    ],
)
def test_no_link_is_followed_and_nothing_above_is_reached(way: Way, top: int, name: str) -> None:
    assert os.stat(name, dir_fd=top), "the control: the name leads somewhere"
    with pytest.raises(OSError, match=r"Errno"):
        way(top, name)


@ways
def test_an_absolute_name_leads_nowhere(way: Way, top: int, tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"Errno"):
        way(top, str(tmp_path / "secret/key"))


def test_what_is_held_has_the_hashes_that_the_evidence_computes(tmp_path: Path) -> None:
    (tmp_path / "dep/b/__pycache__").mkdir(parents=True)
    for name in ("dep/a.txt", "dep/b/c.txt", "dep/b-c.txt", "file", "dep/b/__pycache__/x.pyc"):
        (tmp_path / name).write_text(name)
    with paths.hold(tmp_path, ["dep", "file"]) as held:
        for name, one in held.items():
            for compiled in (True, False):
                expected = {
                    "sha256": sha256_path(tmp_path / name, compiled=compiled),
                    "md5": md5_path(tmp_path / name, compiled=compiled),
                }
                assert paths.hashes(one, compiled=compiled) == expected
        assert held["dep"].hidden == ("b/__pycache__",), "what is compiled is not shown"


@pytest.mark.parametrize("bad", ["link", "pipe"])
def test_a_dep_with_anything_but_plain_files_is_refused(tmp_path: Path, bad: str) -> None:
    (tmp_path / "dep").mkdir()
    (tmp_path / "dep/x").symlink_to("/etc/passwd") if bad == "link" else os.mkfifo(tmp_path / "dep/x")
    with paths.hold(tmp_path, ["dep"]) as held, pytest.raises(BoundaryError, match="not a plain file"):
        paths.hashes(held["dep"])


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_a_dep_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    """A pipe would be a way in from outside, and a device has no end: the runner would read it for ever."""
    place = tmp_path / "dep"
    with socket.socket(socket.AF_UNIX) as listening:
        if kind == "pipe":
            os.mkfifo(place)
        elif kind == "socket":
            listening.bind(str(place))
        elif os.geteuid() != 0:
            pytest.skip("only root can make a device")
        else:
            os.mknod(place, 0o20600, os.makedev(1, 3))
        with (
            pytest.raises(BoundaryError, match="'dep' is not a plain file"),
            paths.hold(tmp_path, ["dep"]),
        ):
            pass
        with pytest.raises(BoundaryError, match="not a plain file"), paths.hold_file(place):
            pass
    if kind != "socket":
        descriptor = os.open(place, os.O_PATH)
        with paths.opened(descriptor):
            assert paths.hashes(Held(place, descriptor)), "the control: a hash can be had of it"


def swap(room: Cell) -> None:
    room.dep.unlink()
    room.dep.symlink_to(room.raw)


def swap_parent(room: Cell, *, link: bool) -> None:
    """The name of the dep stays, and so does the dep; the folder that it lies in is another."""
    other = room.base / "other"
    other.mkdir()
    shutil.copy(room.raw, other / room.dep.name)
    room.dep.parent.rename(room.base / "aside")
    if link:
        room.dep.parent.symlink_to(other)
    else:
        other.rename(room.dep.parent)


def refused(room: Cell, wanted: frozenset[layers.Layer], grants: Grants) -> str:
    """Why the dep could not be read behind the wall; empty where the file of the first look was shown."""
    try:
        room.run(f"print(open({str(room.dep)!r}).read())", wanted, grants=grants)
    except BoundaryError as error:
        return str(error)
    return ""


@walls
def test_a_dep_swapped_for_a_link_after_the_look_is_not_followed(
    room: Cell, wanted: frozenset[layers.Layer]
) -> None:
    with paths.hold(room.base, ["data/released/table"]) as held:
        swap(room)
        grants = replace(room.grants(), read=room.grants().read[:-1], held=tuple(held.values()))
        refusal = refused(room, wanted, grants)
    assert not refusal or "replaced" in refusal or "symbolic links" in refusal
    assert SECRET not in room.output


@walls
@pytest.mark.parametrize("link", [True, False], ids=["link", "folder"])
def test_a_dep_whose_folder_was_swapped_is_not_looked_up_anew(
    room: Cell, wanted: frozenset[layers.Layer], link: bool
) -> None:
    with paths.hold(room.base, ["data/released/table"]) as held:
        swap_parent(room, link=link)
        assert room.dep.read_text() == SECRET, "the control: by its name it is another one now"
        grants = replace(room.grants(), read=room.grants().read[:-1], held=tuple(held.values()))
        refusal = refused(room, wanted, grants)
    assert not refusal or "replaced" in refusal or "symbolic links" in refusal
    assert SECRET not in room.output


def test_folders_exchanged_all_the_time_give_one_or_the_other_and_never_both(tmp_path: Path) -> None:
    """Hashed and shown is what was opened, whatever its parents are called by then."""
    for name in ("a", "b"):
        (tmp_path / name / "inner").mkdir(parents=True)
        for number in range(20):
            (tmp_path / name / f"inner/{number}").write_text(name)
    possible = {sha256_path(tmp_path / name / "inner") for name in ("a", "b")}
    ended = threading.Event()

    def exchange() -> None:
        while not ended.is_set():
            names = (os.fsencode(tmp_path / name) for name in ("a", "b"))
            kernel.syscall("renameat2", kernel.AT_FDCWD, next(names), kernel.AT_FDCWD, next(names), 2)

    thread = threading.Thread(target=exchange)
    thread.start()
    mixed = set()
    try:
        for _ in range(150):
            with paths.hold(tmp_path, ["a/inner"]) as held:
                assert paths.hashes(held["a/inner"])["sha256"] in possible
            mixed.add("".join((tmp_path / f"a/inner/{number}").read_text() for number in range(20)))
    finally:
        ended.set()
        thread.join()
    assert mixed - {"a" * 20, "b" * 20}, "the control: name by name they are mixed"


def test_an_out_is_published_where_its_folder_was_opened(tmp_path: Path) -> None:
    """A parent that is exchanged for a link in the middle leads no file of the runner elsewhere."""
    (tmp_path / "work/receipts").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    with paths.folder_of(tmp_path / "work", "receipts/x.json") as (folder, last):
        (tmp_path / "work/receipts").rename(tmp_path / "aside")
        (tmp_path / "work/receipts").symlink_to(tmp_path / "elsewhere")
        os.close(os.open(last, os.O_CREAT | os.O_WRONLY, dir_fd=folder))
        (tmp_path / "work/receipts/by-name").touch()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["by-name"], "and the control"
    assert (tmp_path / "aside/x.json").exists()


def test_code_whose_folder_was_exchanged_for_a_while_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "stages/open").mkdir(parents=True)
    (tmp_path / "stages/open/train.py").write_text("honest")
    with paths.hold(tmp_path, ["stages"]) as held:
        kept = {
            folders: paths.stamps(held["stages"], compiled=False, folders=folders)
            for folders in (True, False)
        }
        assert paths.stamps(held["stages"], compiled=False) == kept[True]
        (tmp_path / "stages/open").rename(tmp_path / "aside")
        (tmp_path / "stages/open").mkdir()
        (tmp_path / "stages/open/train.py").write_text("other")
        shutil.rmtree(tmp_path / "stages/open")
        (tmp_path / "aside").rename(tmp_path / "stages/open")
        assert paths.stamps(held["stages"], compiled=False) != kept[True]
        assert paths.stamps(held["stages"], compiled=False, folders=False) == kept[False], "the control"


@walls
def test_a_dep_swapped_for_another_file_is_not_read_either(
    room: Cell, wanted: frozenset[layers.Layer]
) -> None:
    with paths.hold(room.base, ["data/released/table"]) as held:
        shutil.copy(room.raw, room.base / "copy")
        (room.base / "copy").rename(room.dep)
        grants = replace(room.grants(), read=room.grants().read[:-1], held=tuple(held.values()))
        refusal = refused(room, wanted, grants)
    assert not refusal or "replaced" in refusal
    assert SECRET not in room.output


@pytest.mark.skipif(OFFERED != layers.ALL, reason="not all layers here: airlock doctor")
@pytest.mark.parametrize("wanted", [layers.ALL, layers.MINIMUM], ids=["full", "minimum"])
def test_a_path_that_is_not_held_would_have_been_followed(
    room: Cell, wanted: frozenset[layers.Layer]
) -> None:
    """The control: granted by its name, as it was done before, the swap hands out the records."""
    swap(room)
    (room.base / "canary").write_text("x")
    grants = replace(room.grants(), canary=room.base / "canary")
    room.run(f"print(open({str(room.dep)!r}).read())", wanted, grants=grants)
    assert SECRET in room.output


@walls
def test_what_is_held_is_read_and_what_is_hidden_in_it_is_not(
    room: Cell, wanted: frozenset[layers.Layer]
) -> None:
    folder = room.base / "data/released/__pycache__"
    folder.mkdir()
    (folder / "x.pyc").write_text(SECRET)
    with paths.hold(room.base, ["data/released"]) as held:
        grants = replace(room.grants(), read=room.grants().read[:-1], held=tuple(held.values()))
        code = (
            f"print(open({str(room.dep)!r}).read(), flush=True); "
            f"print(open({str(folder / 'x.pyc')!r}).read())"
        )
        room.run(code, wanted, grants=grants)
    assert room.output.startswith("the dep\n") and SECRET not in room.output


@walls
def test_a_mount_to_write_to_is_recorded_too(room: Cell, wanted: frozenset[layers.Layer]) -> None:
    """A folder with records that is granted by mistake, as a checkpoint's was: whatever happens, it is not
    "no".
    """
    (room.base / "canary").write_text("x")
    with paths.hold_folder(room.raw.parent, "/inside") as held:
        grants = replace(room.grants(), held_write=(held,), canary=room.base / "canary")
        place = held.inside(new_root=layers.Layer.ROOT in wanted)
        outcome = room.run(f"print(open({str(place / room.raw.name)!r}).read())", wanted, grants=grants)
    assert SECRET in room.output, "the control: it was granted"
    assert outcome.reads is None or str(room.raw) in outcome.reads


def test_files_of_the_runner_are_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work/receipts").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BoundaryError, match="is a link"):
        paths.write(tmp_path / "work", "receipts/train/x.json", b"{}")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    (tmp_path / "work/receipts").unlink()
    paths.write(tmp_path / "work", "receipts/train/x.json", b"{}")
    assert (tmp_path / "work/receipts/train/x.json").read_bytes() == b"{}"
