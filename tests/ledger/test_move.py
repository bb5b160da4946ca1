"""From one database to another and back, by one command: chain, heads and signatures as they were, and the
one left behind is closed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from airlock.errors import InputError, LedgerError, LedgerMoved
from airlock.ledger import Ledger
from airlock.ledger.moving import move
from airlock.ledger.store import Store
from airlock.owner.home import Project
from tests.commands.test_budget import ask, desk
from tests.commands.test_reconcile import owner, release
from tests.ledger.conftest import Urls

__all__ = ["desk", "owner"]  # the fixtures


def test_ledger_goes_to_another_database_and_comes_back(
    owner: Project, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, at_home, elsewhere = release(owner, 0.5), owner.ledger_url, urls()
    before = Ledger.open(at_home, create=False).history()
    moved = ask("move", elsewhere)
    assert moved.exit_code == 0, moved.exception
    assert f"{len(before)} entries copied and checked" in moved.stdout

    # What is left behind answers nothing but where it went: nobody spends from it by mistake.
    for command in (["show"], ["verify"], ["move", elsewhere], ["set", "clinic", "--epsilon", "9"]):
        options = ["--delta", "1e-6", "--why", "x"] if command[0] == "set" else []
        refused = ask(*command, *options).exception
        assert isinstance(refused, LedgerMoved) and "AIRLOCK_LEDGER_URL=" in str(refused), command
    with pytest.raises(LedgerMoved):
        release(owner, 1.0)

    monkeypatch.setenv("AIRLOCK_LEDGER_URL", elsewhere)
    assert Ledger.open(owner.ledger_url, create=False).history() == before
    assert ask("verify").stdout == "every entry is in its place\n"
    assert release(owner, 0.5).status == "committed"  # a replay
    release(owner, 1.0)
    longer = Ledger.open(owner.ledger_url, create=False).history()

    assert ask("move", at_home).exit_code == 0
    monkeypatch.delenv("AIRLOCK_LEDGER_URL")
    assert Ledger.open(owner.ledger_url, create=False).history() == longer
    assert ask("verify").stdout == "every entry is in its place\n"
    assert release(owner, 0.5).release_id == made.release_id
    release(owner, 1.5)
    assert len(list(owner.folder.glob("ledger.db.moved-*"))) == 1


def test_place_that_is_taken_is_left_as_it_is(owner: Project, urls: Urls, tmp_path: Path) -> None:
    release(owner, 0.5)
    taken = urls()
    other = Ledger.open(taken, create=True)
    other.set_cap("bank", 1, 1e-6, who="o", why="w")
    before = other.history()
    assert isinstance(ask("move", taken).exception, InputError)
    assert Ledger.open(taken, create=False).history() == before
    release(owner, 1.0)  # and the ledger was not closed


def test_move_that_dies_before_the_copy_is_complete_changes_nothing(
    owner: Project, urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    release(owner, 0.5)
    ledger, target = Ledger.open(owner.ledger_url, create=False), urls()
    before, append, written = ledger.history(), Store.append, []

    def die_late(self: Store, connection: object, entry: object) -> None:
        written.append(entry)
        if len(written) == len(before):
            raise OSError("the other machine is gone")
        append(self, connection, entry)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "append", die_late)
    with pytest.raises(OSError, match="gone"):
        move(ledger, target)
    monkeypatch.undo()
    assert ledger.history() == before
    with pytest.raises(LedgerError, match="is missing"):
        Ledger.open(target, create=False)
    assert move(ledger, target) == len(before)


def test_move_killed_between_the_two_commits_is_completed_by_the_next(owner: Project, urls: Urls) -> None:
    """The copy is whole and the old one not yet closed: two databases that both look like the ledger."""
    release(owner, 0.5)
    ledger, target = Ledger.open(owner.ledger_url, create=False), urls()
    child = os.fork()
    if child == 0:

        def die(connection: sa.Connection) -> None:
            if connection.get_execution_options().get("airlock_writes"):
                os.kill(os.getpid(), signal.SIGKILL)

        sa.event.listen(ledger.store._engine, "commit", die)
        with suppress(BaseException):
            move(ledger, target)
        os._exit(0)
    assert os.WIFSIGNALED(os.waitpid(child, 0)[1])
    release(owner, 1.0)  # the old one is still the ledger, and goes on
    before = ledger.history()
    assert Ledger.open(target, create=False).history() == before[:-3], "the copy is from before that"
    assert move(ledger, target) == len(before)
    assert Ledger.open(target, create=False).history() == before
    with pytest.raises(LedgerMoved):
        ledger.history()


def test_ledger_is_not_moved_onto_itself(owner: Project) -> None:
    release(owner, 0.5)
    assert "is where the ledger is kept" in str(ask("move", owner.ledger_url).exception)
    release(owner, 1.0)


FULL = pytest.mark.skipif(os.geteuid() != 0, reason="needs a disk of its own")


def on_a_full_disk(folder: Path, *commands: str) -> str:
    """What shell commands print behind a small disk on `folder`, which has what is there and no room for more until
    `fill` is removed; only they see it. `$airlock` is the command.
    """
    mounted = (
        f"cp -a {folder}/. {folder}.kept && mount -t tmpfs -o size=512k,mode=700 none {folder} && "
        f"cp -a {folder}.kept/. {folder} && {{ cat /dev/zero > {folder}/fill; }} 2>/dev/null; cd {Path.cwd()}"
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", f"mkdir -p {folder}.kept; {mounted}; " + "; ".join(commands)],
        env={**os.environ, "airlock": f"{sys.executable} -m airlock"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.stdout.startswith(("mount:", "unshare:")):
        pytest.skip("no mounts here")
    return done.stdout


@FULL
def test_move_to_a_disk_that_is_full_is_one_line_and_changes_nothing(
    owner: Project, urls: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From either kind of database."""
    release(owner, 0.5)
    monkeypatch.setenv("AIRLOCK_LEDGER_URL", moved_to(owner, urls()))
    before = Ledger.open(owner.ledger_url, create=False).history()
    disk = tmp_path / "disk"
    disk.mkdir()
    target = f"sqlite:///{disk}/ledger.db"
    said = on_a_full_disk(disk, f"$airlock budget move {target}", "echo $?").splitlines()
    assert len(said) == 2 and said[1] == "1", said
    assert said[0].startswith("airlock: ") and "make room" in said[0]
    assert Ledger.open(owner.ledger_url, create=False).history() == before
    release(owner, 1.0)  # it is still the ledger, and goes on
    said = on_a_full_disk(
        disk,
        f"$airlock budget move {target} >/dev/null 2>&1",
        f"rm {disk}/fill",
        f"$airlock budget move {target}",
    ).splitlines()
    assert "copied and checked" in said[0], "what the first one left is no ledger, and in nobody's way"


def moved_to(owner: Project, url: str) -> str:
    move(Ledger.open(owner.ledger_url, create=False), url)
    return url


@FULL
def test_move_from_a_disk_that_is_full_is_completed_once_there_is_room(owner: Project, urls: Urls) -> None:
    """The copy is whole when the old one cannot be closed: nothing is lost, and neither is spent from twice."""
    release(owner, 0.5)
    target, home = urls(), owner.folder.parent
    said = on_a_full_disk(
        home,
        f"$airlock budget move '{target}'",
        "echo $?",
        "$airlock budget verify",
        f"rm {home}/fill",
        "$airlock budget verify",
        f"$airlock budget move '{target}' | grep -c 'copied and checked'",
        "$airlock budget show",
        f"AIRLOCK_LEDGER_URL='{target}' $airlock budget verify",
    ).splitlines()
    assert said[0].startswith("airlock: ") and "make room" in said[0] and said[1] == "1", said
    assert said[2:5] == ["every entry is in its place", "every entry is in its place", "1"], said
    assert "AIRLOCK_LEDGER_URL=" in said[5] and said[-1] == "every entry is in its place", said
