"""From an owner to a modeller: two users of one machine, an empty folder, an empty HOME, a folder and a web server."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from airlock.errors import AirlockError, BoundaryError, InputError
from airlock.inside.digests import md5_path
from airlock.workspaces import handover, parcel, pipelines, taking
from airlock.workspaces.creation import create
from tests.conftest import ROOT
from tests.workspaces.conftest import Installed

pytestmark = pytest.mark.servers
DISGUISE = ROOT / "tests/wall/attacks/disguise.py"
NOBODY = 65534


@pytest.fixture(scope="session")
def place(owner: Installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the owner has handed over."""
    folder = tmp_path_factory.mktemp("place") / "shared"
    said = owner.run("airlock", "hand-over", str(folder)).stdout
    assert f"airlock take {folder} --owner" in said
    return folder


@dataclass(frozen=True)
class Modeller:
    """Another user, with a HOME in which there is nothing and an environment in which only PATH is set."""

    home: Path
    bin: Path
    folder: Path

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        program = shutil.which(command[0], path=f"{self.bin}:/usr/local/bin:/usr/bin:/bin")
        done = subprocess.run(
            [str(self.bin / "python"), str(DISGUISE), str(NOBODY), str(program), *command[1:]],
            cwd=self.folder if self.folder.exists() else self.home,
            env={
                "HOME": str(self.home),
                "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
                "OMP_NUM_THREADS": "1",
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done


@pytest.fixture
def modeller(owner: Installed, place: Path, tmp_path: Path) -> Modeller:
    home = tmp_path / "modeller"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    for folder in (tmp_path, place.parent, owner.bin.parents[1]):
        for each in (folder, *list(folder.parents)[:3]):
            each.chmod(each.stat().st_mode | 0o011)
    return Modeller(home, owner.bin, home / "clinic")


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A folder on a web server of this machine, to be read only."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_only_what_was_released_is_handed_over(owner: Installed, place: Path) -> None:
    lock = yaml.safe_load((owner.root / "dvc.lock").read_text())["stages"]
    kept = {item["path"]: item["md5"] for stage in lock.values() for item in stage["outs"]}
    stored = {path.parent.name + path.name for path in (place / "files/md5").glob("*/*")}
    assert kept["data/sealed"] not in stored and kept["data/released/release"] in stored
    sealed = {md5_path(path) for path in (owner.root / "data/sealed").iterdir()}
    assert len(sealed) > 1 and not sealed & stored
    assert not owner.run("git", "status", "--porcelain").stdout  # no path of this machine in git


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_modeller_takes_trains_and_is_believed(owner: Installed, place: Path, modeller: Modeller) -> None:
    key = json.loads((place / parcel.FOLDER / parcel.NOTE).read_text())["body"]["key"]
    said = modeller.run("airlock", "take", str(place), "clinic", "--owner", key)
    assert "every signature of the owner's key holds" in said.stdout
    assert "Running stage 'train'" in said.stdout and "Running stage 'report'" in said.stdout
    assert "ingest" not in said.stdout and "sealed" not in said.stderr
    assert modeller.folder.stat().st_uid == NOBODY and not (modeller.folder / "data/sealed").exists()
    assert list(modeller.home.rglob("master")) == []  # no key of any record

    params = modeller.folder / "params.yaml"
    params.write_text(params.read_text().replace("ridge: auto", "ridge: 0.5"))
    again = modeller.run("dvc", "repro")
    assert "Running stage 'train'" in again.stdout and "ingest" not in again.stdout
    told = modeller.run("airlock", "report").stdout
    assert "Accuracy" in told and "proven epsilon " in told
    refused = modeller.run("airlock", "audit", check=False)
    assert refused.returncode == 1 and "airlock keys admit" in refused.stdout + refused.stderr

    own = said.stdout.rpartition("keys admit ")[2].split()[0]
    owner.run("airlock", "keys", "admit", own)
    owner.commit("Admit the modeller")
    owner.run("airlock", "hand-over", str(place))
    modeller.run("git", "add", "-A")
    modeller.run("git", "-c", "user.name=m", "-c", "user.email=m@example.org", "commit", "-q", "-m", "Mine")
    with served(place) as address:
        again = modeller.run("airlock", "take", address, str(modeller.folder))
    assert "didn't change, skipping" in again.stdout and "Running stage 'train'" not in again.stdout
    assert "ridge: 0.5" in params.read_text()
    assert "The boundary holds." in modeller.run("airlock", "audit").stdout


def test_a_web_server_is_as_good_as_a_folder(owner: Installed, place: Path, tmp_path: Path) -> None:
    with served(place) as address:
        taker = Installed(tmp_path, tmp_path / "home", owner.bin)
        taker.home.mkdir()
        taker.run("airlock", "take", address, "mine", "--no-train")
        other = taker.run("airlock", "take", f"{address}/nothing", "other", check=False)
    assert other.returncode == 2 and "nothing was handed over" in other.stderr
    assert (tmp_path / "mine/data/released/release/release.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "mine"]
    stages = yaml.safe_load((tmp_path / "mine" / pipelines.TOP).read_text())["stages"]
    assert set(stages) == {"dataset", "train", "evaluate", "report"}


def spoil_note(place: Path) -> None:
    note = place / parcel.FOLDER / parcel.NOTE
    note.write_text(note.read_text().replace('"main"', '"niam"'))


def spoil_history(place: Path) -> None:
    with (place / parcel.FOLDER / parcel.HISTORY).open("ab") as file:
        file.write(b"x")


def spoil_release(place: Path) -> None:
    """Other noise in the release: its hash in DVC's lock is right only for what the owner signed."""
    for file in (place / "files/md5").glob("*/*"):
        data = bytearray(file.read_bytes())
        if b"coefficients" in data and data[:1] == b"{":
            file.chmod(0o644)
            file.write_bytes(data.replace(b"coefficients", b"coeffizients", 1))


def spoil_listing(place: Path) -> None:
    """A folder's list of files, which DVC does not compare with its hash, with a name that leads elsewhere."""
    stolen = b"written by a stranger"
    name = hashlib.md5(stolen, usedforsecurity=False).hexdigest()
    file = place / "files/md5" / name[:2] / name[2:]
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(stolen)
    for listing in (place / "files/md5").glob("*/*.dir"):
        listing.chmod(0o644)
        entries = [*json.loads(listing.read_text()), {"md5": name, "relpath": "../../../../stolen"}]
        listing.write_text(json.dumps(entries))


@pytest.mark.parametrize("spoil", [spoil_note, spoil_history, spoil_release, spoil_listing])
def test_what_is_not_as_it_was_signed_is_not_taken(
    owner: Installed, place: Path, tmp_path: Path, spoil: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    shutil.copytree(place, tmp_path / "copy")
    spoil(tmp_path / "copy")  # type: ignore[operator]
    before = sorted(tmp_path.iterdir())
    with pytest.raises(
        AirlockError, match="signature|signed|not what stage|does not hold|failed|was changed"
    ):
        taking.take(str(tmp_path / "copy"), tmp_path / "mine", None)
    assert sorted(tmp_path.iterdir()) == before


def test_another_owner_is_not_believed(place: Path, tmp_path: Path) -> None:
    with pytest.raises(BoundaryError, match="another owner"):
        taking.take(str(place), tmp_path / "mine", "0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_dvc_cannot_write_down_is_refused_before_anything_and_a_link_to_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Übergabe").mkdir()
    (tmp_path / "link").symlink_to("Übergabe")
    monkeypatch.chdir(tmp_path / "Übergabe")
    for place in (str(tmp_path / "Übergabe"), "here", "s3://bücket/clinic"):
        with pytest.raises(InputError, match="ASCII name, such as a link to it"):
            parcel.address(place)
    assert parcel.address(str(tmp_path / "link")) == str(tmp_path / "link")


def test_what_dvc_could_not_foresee_is_told_in_its_own_words(tmp_path: Path) -> None:
    """And not where to ask for help, which it says last."""
    create(tmp_path / "clinic")
    with pytest.raises(InputError, match="`dvc remote` failed: unexpected error - .*codec") as caught:
        handover.dvc(tmp_path / "clinic", "remote", "modify", "--local", "released", "url", "/srv/Übergabe")
    assert "support" not in str(caught.value)


def test_a_bad_place_is_one_line(owner: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRLOCK_HOME", str(owner.home / "airlock"))
    for place, line in (
        (str(owner.root / "out"), "inside the workspace"),
        (str(owner.home / "airlock/out"), "inside AIRLOCK_HOME"),
        ("https://me:secret@example.org/x", "leave the password out"),
    ):
        with pytest.raises(InputError, match=line) as caught:
            handover.hand_over(owner.root, place)
        assert "secret" not in str(caught.value)
    (owner.root / "more").touch()
    with pytest.raises(InputError, match="commit first"):
        handover.hand_over(owner.root, str(tmp_path / "x"))
    (owner.root / "more").unlink()
    with pytest.raises(InputError, match="nothing was handed over"):
        taking.take(str(tmp_path / "nowhere"), tmp_path / "mine", None)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
