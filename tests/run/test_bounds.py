"""A stage is bounded in all that it leaves and says: sizes, depth, lines, events, logs, the way its command
ends.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from airlock.errors import BoundaryError
from airlock.owner import home
from airlock.owner.home import Project, append_log, owner_log
from airlock.params import BoundaryParams
from airlock.run import limits, stage_output
from airlock.run.outs import publish, remove

DEEP = 3000


def dig(top: Path, depth: int) -> None:
    """Folders in folders, deeper than a path can be long."""
    place = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    (tmp_path / "staging/out").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    return tmp_path / "staging"


def test_a_deep_folder_is_refused_and_nothing_of_it_stays(staging: Path, tmp_path: Path) -> None:
    dig(staging / "out", DEEP)
    with pytest.raises(BoundaryError, match="deep"):
        publish(staging, ["out"], tmp_path / "work")
    assert list(staging.iterdir()) == [] and list((tmp_path / "work").iterdir()) == []


def test_the_usual_way_to_remove_a_deep_folder_fails(tmp_path: Path) -> None:
    """The control: leftovers of this kind broke every later run."""
    (tmp_path / "left").mkdir()
    dig(tmp_path / "left", DEEP)
    with pytest.raises(RecursionError):
        shutil.rmtree(tmp_path / "left", ignore_errors=True)
    remove(tmp_path / "left")
    assert not (tmp_path / "left").exists()


def test_a_file_of_nothing_but_a_hole_is_refused(staging: Path, tmp_path: Path) -> None:
    with (staging / "out/sparse").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(BoundaryError, match="hole"):
        publish(staging, ["out"], tmp_path / "work")
    assert list((tmp_path / "work").iterdir()) == []


def test_outs_larger_than_allowed_are_refused_before_they_are_copied(staging: Path, tmp_path: Path) -> None:
    (staging / "out/large").write_bytes(bytes(3000))
    with pytest.raises(BoundaryError, match="too large"):
        publish(staging, ["out"], tmp_path / "work", most=2999)
    (staging / "out").mkdir()
    (staging / "out/large").write_bytes(bytes(3000))
    publish(staging, ["out"], tmp_path / "work", most=3000)


@pytest.mark.parametrize(
    "name", [".gitattributes", "dvc.yaml", "x.dvc", "x.pth", "x.pyc", "Makefile", "conftest.py"]
)
def test_nothing_comes_out_that_a_program_outside_obeys(staging: Path, tmp_path: Path, name: str) -> None:
    (staging / "out" / name).write_text("x")
    with pytest.raises(BoundaryError, match="obey"):
        publish(staging, ["out"], tmp_path / "work")


@pytest.mark.parametrize("way", ["data", "data/model"])
def test_nothing_is_published_through_a_link(staging: Path, tmp_path: Path, way: str) -> None:
    """A committed link at the out's place, or above it, that leads to where programs are started from."""
    target, work = tmp_path / "site-packages", tmp_path / "work"
    (target / "model").mkdir(parents=True)
    (work / way).parent.mkdir(exist_ok=True)
    (work / way).symlink_to(target)
    (staging / "data/model").mkdir(parents=True)
    (staging / "data/model/zz.txt").write_text("x")
    refusal = ""
    try:
        publish(staging, ["data/model"], work)
    except BoundaryError as error:
        refusal = str(error)
    assert not refusal or "link" in refusal, "refused for the link, or put in the link's place"
    assert not list(target.rglob("zz.txt"))


LINE = """
import os, sys, threading
from airlock.run import stage_output
def peak():
    # Unlike getrusage's figure, this one begins anew with the program.
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
reader, writer = os.pipe()
def write():
    block = b"x" * (1 << 20)
    for _ in range(200):
        os.write(writer, block)
    os.write(writer, b"\\n{}\\n")
    os.close(writer)
threading.Thread(target=write, daemon=True).start()
before = peak()
found = list(stage_output.lines(reader, 1 << 40)) if sys.argv[1] == "bounded" else list(os.fdopen(reader, "rb"))
print(len(found), peak() - before)
"""


def grown(way: str) -> tuple[int, int]:
    done = subprocess.run([sys.executable, "-c", LINE, way], capture_output=True, text=True, check=True)
    lines, kilobytes = map(int, done.stdout.split())
    return lines, kilobytes


def test_an_endless_line_is_not_kept_in_memory() -> None:
    lines, kilobytes = grown("bounded")
    assert lines == 1 and kilobytes < 100_000
    assert grown("plain")[1] > 190_000, "the control: read as lines usually are"


def told(data: bytes, most: int = 1 << 30) -> list[bytes]:
    reader, writer = os.pipe()
    threading.Thread(target=lambda: (os.write(writer, data), os.close(writer)), daemon=True).start()
    return list(stage_output.lines(reader, most))


def test_what_is_said_beyond_the_limit_is_forgotten() -> None:
    assert told(b"one\ntwo\nthree\n", most=8) == [b"one\n", b"two\n"]


@pytest.mark.parametrize(
    "line",
    [
        b"", b"1", b"[]", b"null", b'"note"', b"{}", b'{"kind": "other"}', b'{"kind": []}', b'{"kind": "error"}',
        b'{"kind": "progress", "label": "x", "done": "a", "total": 1}',
        b'{"kind": "progress", "label": "x", "done": NaN, "total": 1}',
        b'{"kind": "progress", "label": 1, "done": 1, "total": 1}', b"[" * 100_000, b"\xff",
    ],
)  # fmt: skip
def test_what_is_no_event_is_dropped(line: bytes) -> None:
    assert stage_output.event(line) is None


def test_events_carry_no_escapes_and_no_endless_texts() -> None:
    event = stage_output.event(
        json.dumps({"kind": "error", "class": "X\x1b[2J", "message": "a\n\x1b]0;b\x07" + "c" * 9999}).encode()
    )
    assert event is not None and "\x1b" not in str(event) and event["message"].startswith("a  ]0;b c")
    assert len(event["message"]) == 2000


def test_what_a_stage_prints_is_text_that_no_terminal_obeys() -> None:
    reader, writer = os.pipe()
    os.write(writer, "plain é\t1\n\x1b]52;c;aGk=\x07\x9b2J\r\x00end\n".encode() + b"\xff\n")
    os.close(writer)
    shown: list[bytes] = []
    stage_output.pass_on(reader, shown.append, 1 << 20)
    assert b"".join(shown).decode() == "plain é\t1\n]52;c;aGk=2Jend\n\ufffd\n"


def test_printing_stops_at_the_limit(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    threading.Thread(target=lambda: (os.write(writer, b"x" * 500_000), os.close(writer)), daemon=True).start()
    shown: list[bytes] = []
    stage_output.pass_on(reader, shown.append, 100_000)
    assert sum(map(len, shown)) < 300_000 and b"dropped" in shown[-1]


def test_the_owners_log_makes_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "LARGEST_LOG", 10_000)
    project = Project("x", tmp_path)
    for number in range(100):
        owner_log(project, "train", {"kind": "note", "number": number, "text": "x" * 400})
    append_log(project, "train.jsonl", b"last\n")
    assert sum(path.stat().st_size for path in project.log.iterdir()) < 25_000
    assert len(list(project.log.iterdir())) == 2


def test_one_line_of_the_owners_log_is_bounded(tmp_path: Path) -> None:
    owner_log(Project("x", tmp_path), "train", {"kind": "note", "text": "x" * (5 << 20)})
    assert (tmp_path / "log/train.jsonl").stat().st_size < 1 << 20


def test_limits_come_from_the_parameters_and_the_machine() -> None:
    given = limits.of(BoundaryParams(memory=2, file_size=3, output=4, time=5, processes=60))
    assert (given.memory, given.file_size, given.output) == (2 << 30, 3 << 30, 4 << 20)
    assert (given.time, given.processes) == (5, 60)
    pages = resource.getpagesize() * os.sysconf("SC_PHYS_PAGES")
    assert 0.8 * pages < limits.of(BoundaryParams()).memory < pages
