"""Keys: made once, never overwritten, derived apart, rotated without giving a question a second answer."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from airlock.errors import InputError, KeysError
from airlock.owner import key_backup, keys
from airlock.owner.home import Project
from airlock.owner.keys import Keyring, verify

PASSPHRASE = "correct horse battery"


@pytest.fixture
def home(tmp_path: Path) -> Project:
    folder = tmp_path / "home"
    folder.mkdir()
    return Project("test", folder)


def test_keys_are_private_files_and_creating_twice_keeps_them(home: Project) -> None:
    first = Keyring.create(home)
    again = Keyring.create(home)
    assert (again.masters, again.scratch, again.public_key) == (
        first.masters,
        first.scratch,
        first.public_key,
    )
    assert {path.name for path in home.keys.iterdir()} == {"master", "scratch", "signing"}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in home.keys.iterdir())


def test_missing_damaged_and_open_keys_name_the_fix(home: Project) -> None:
    with pytest.raises(KeysError, match="airlock keys restore"):
        Keyring.load(home)
    Keyring.create(home)
    (home.keys / "scratch").chmod(0o644)
    with pytest.raises(KeysError, match="chmod 600"):
        Keyring.load(home)
    (home.keys / "scratch").chmod(0o600)
    (home.keys / "scratch").write_bytes(b"short")
    with pytest.raises(KeysError, match="damaged"):
        Keyring.load(home)


def test_every_use_and_every_context_has_its_own_key(home: Project) -> None:
    ring = Keyring.create(home)
    derived = [
        ring.seal_key({"a": 1}),
        ring.seal_key({"a": 2}),
        ring.noise_key("a", scratch=False),
        ring.noise_key("a", scratch=True),
        ring.noise_key("b", scratch=False),
        ring.split_key("a"),
        ring.split_key("b"),
    ]
    assert len({*derived, *ring.masters, ring.scratch}) == len(derived) + 2
    assert ring.seal_key({"a": 1, "b": 2}) == ring.seal_key({"b": 2, "a": 1})


def test_fingerprint_depends_on_bytes_and_key(home: Project, tmp_path: Path) -> None:
    ring, file = Keyring.create(home), tmp_path / "records.csv"
    file.write_bytes(b"a" * 3_000_000)
    first = ring.fingerprint(file)
    assert first == ring.fingerprint(file)
    file.write_bytes(b"a" * 2_999_999 + b"b")
    assert ring.fingerprint(file) != first
    other = Keyring.create(Project("other", tmp_path / "other"))
    assert other.fingerprint(file) != ring.fingerprint(file)
    with pytest.raises(InputError, match="nothere"):
        ring.fingerprint(tmp_path / "nothere")


def test_signatures_verify_and_forgeries_do_not(home: Project) -> None:
    ring = Keyring.create(home)
    signature = ring.sign(b"receipt")
    assert verify(ring.public_key, b"receipt", signature)
    assert not verify(ring.public_key, b"receipts", signature)
    assert not verify(ring.public_key, b"receipt", signature[:-1] + bytes([signature[-1] ^ 1]))
    assert not verify(b"no key", b"receipt", signature)
    assert keys.signer(home).public_key == ring.public_key


def test_secrets_do_not_show_in_a_representation(home: Project) -> None:
    ring = Keyring.create(home)
    assert all(
        secret.hex() not in repr(ring) and repr(secret) not in repr(ring)
        for secret in (*ring.masters, ring.scratch)
    )


def test_rotation_changes_new_seals_and_noise_but_not_identity(home: Project, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    before = Keyring.create(home)
    after = keys.rotate(home, unfinished=["half-made"])
    assert (before.generation, after.generation) == (1, 2)
    assert after.seal_key({"generation": 1}) == before.seal_key({"generation": 1})
    assert after.seal_key({"generation": 2}) != after.seal_key({"generation": 1})
    assert after.noise_key("new", scratch=False) != before.noise_key("new", scratch=False)
    assert after.noise_key("half-made", scratch=False) == before.noise_key("half-made", scratch=False)
    assert after.fingerprint(tmp_path / "file") == before.fingerprint(tmp_path / "file")
    assert after.split_key("p") == before.split_key("p")
    assert after.public_key == before.public_key
    third = keys.rotate(home)
    assert third.masters[:2] == after.masters
    assert third.noise_key("half-made", scratch=False) == before.noise_key("half-made", scratch=False)
    with pytest.raises(KeysError, match="generation 4"):
        third.seal_key({"generation": 4})


def test_backup_restores_every_generation_elsewhere(home: Project, tmp_path: Path) -> None:
    Keyring.create(home)
    keys.rotate(home, unfinished=["half-made"])
    key_backup.backup(home, tmp_path / "backup", PASSPHRASE)
    elsewhere = Project("test", tmp_path / "elsewhere")
    keys.signer(elsewhere)  # a machine that signed receipts before the owner's keys came
    assert key_backup.restore(elsewhere, tmp_path / "backup", PASSPHRASE) == 2
    assert Keyring.load(elsewhere).masters == Keyring.load(home).masters
    assert Keyring.load(elsewhere).reserved == {"half-made": 1}
    assert Keyring.load(elsewhere).public_key == Keyring.load(home).public_key
    assert key_backup.restore(elsewhere, tmp_path / "backup", PASSPHRASE) == 2


def test_backup_hides_the_keys_and_opens_only_with_its_passphrase(home: Project, tmp_path: Path) -> None:
    ring = Keyring.create(home)
    key_backup.backup(home, tmp_path / "backup", PASSPHRASE)
    data = (tmp_path / "backup").read_bytes()
    assert all(
        secret not in data and secret.hex().encode() not in data for secret in (*ring.masters, ring.scratch)
    )
    for file, passphrase in ((data, PASSPHRASE + "!"), (data[:-1] + bytes([data[-1] ^ 1]), PASSPHRASE)):
        (tmp_path / "changed").write_bytes(file)
        with pytest.raises(KeysError, match="does not open"):
            key_backup.restore(home, tmp_path / "changed", passphrase)


def test_backup_and_restore_never_overwrite(home: Project, tmp_path: Path) -> None:
    Keyring.create(home)
    key_backup.backup(home, tmp_path / "backup", PASSPHRASE)
    with pytest.raises(InputError, match="exists"):
        key_backup.backup(home, tmp_path / "backup", PASSPHRASE)
    keys.rotate(home)
    with pytest.raises(KeysError, match="newer keys"):
        key_backup.restore(home, tmp_path / "backup", PASSPHRASE)
    with pytest.raises(KeysError, match="project 'test'"):
        key_backup.restore(Project("another", tmp_path / "another"), tmp_path / "backup", PASSPHRASE)


def test_short_passphrases_and_other_files_are_refused(home: Project, tmp_path: Path) -> None:
    Keyring.create(home)
    with pytest.raises(KeysError, match="12 characters"):
        key_backup.backup(home, tmp_path / "backup", "short")
    assert not (tmp_path / "backup").exists()
    (tmp_path / "other").write_text("no backup")
    with pytest.raises(KeysError, match="not a backup"):
        key_backup.restore(home, tmp_path / "other", PASSPHRASE)
    with pytest.raises(InputError, match="cannot be read"):
        key_backup.restore(home, tmp_path / "nothere", PASSPHRASE)
