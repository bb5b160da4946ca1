"""The keyring: three secrets on disk, everything else derived from them.

Each generation has a master key. The *first* one is the project's identity: fingerprints and splits come from
it for ever, because a new fingerprint would be a new release id and so a second charge for the same question.
Seals and noise come from the newest generation; a seal says which one it used, so that old ones stay
readable.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import shlex
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from airlock.errors import InputError, KeysError
from airlock.files import sync
from airlock.inside.digests import CHUNK, canonical_json
from airlock.owner.home import Project, check_private, write_private
from airlock.records.places import PlacePart, parts_of, shown
from airlock.wall import secrecy

SIZE = 32
RESERVED_FILE = "reserved.json"
FORGOTTEN = ".forgotten"


@dataclass(frozen=True)
class Signer:
    """Signs receipts with the machine's Ed25519 key."""

    private: Ed25519PrivateKey = field(repr=False)

    @property
    def public_key(self) -> bytes:
        """Raw 32 bytes."""
        return self.private.public_key().public_bytes_raw()

    def sign(self, data: bytes) -> bytes:
        """The 64-byte signature of `data`."""
        return self.private.sign(data)


@dataclass(frozen=True)
class Keyring:
    """What the broker derives keys from. Stages get derived keys, never this."""

    masters: tuple[bytes, ...] = field(repr=False)
    scratch: bytes = field(repr=False)
    signer: Signer = field(repr=False)
    reserved: Mapping[str, int] = field(default_factory=dict, repr=False)
    batches: Path | None = None

    @classmethod
    def load(cls, project: Project) -> Keyring:
        """Read the keys.

        Raises:
            KeysError: a key is missing, damaged, or open to other users.
        """
        older = sorted(_old(project).glob("*.master"), key=lambda path: int(path.stem))
        masters = tuple(_read(path) for path in (*older, project.keys / "master"))
        return cls(
            masters, _read(project.keys / "scratch"), signer(project), _reserved(project), _batches(project)
        )

    @classmethod
    def create(cls, project: Project) -> Keyring:
        """Make the keys that are missing; an existing key is never overwritten."""
        for name in ("master", "scratch"):
            _create(project.keys / name)
        return cls.load(project)

    @property
    def generation(self) -> int:
        """1 at first, one more after each rotation."""
        return len(self.masters)

    @property
    def public_key(self) -> bytes:
        """Raw public key of the receipts' signatures."""
        return self.signer.public_key

    def sign(self, data: bytes) -> bytes:
        """Sign with the Ed25519 key; `verify` checks it."""
        return self.signer.sign(data)

    def fingerprint(self, place: Path | str) -> str:
        """Keyed fingerprint (HMAC-SHA256, hex) of a place's bytes: without the key nobody can test a guess
        against it.
        """
        return self.fingerprints(place)[0]

    def fingerprints(self, place: Path | str) -> list[str]:
        """The fingerprint of a place, then those of its parts where it is a folder: a part is known again on
        its own.
        """
        parts = parts_of(str(place))
        found = [self._fingerprint(part, str(place)) for part in parts]
        if not parts[0].name:
            return found
        named = canonical_json([[part.name, each] for part, each in zip(parts, found, strict=True)])
        return [
            hmac.new(_derive(self.masters[0], "fingerprint"), named, digestmod="sha256").hexdigest(),
            *found,
        ]

    def row_key(self) -> bytes:
        """For digests of rows, by which the same records are known again in another form (owner/rows.py)."""
        return _derive(self.masters[0], "rows")

    def _fingerprint(self, part: PlacePart, place: str) -> str:
        digest = hmac.new(_derive(self.masters[0], "fingerprint"), digestmod="sha256")
        try:
            with part.open() as file:
                while block := file.read(CHUNK):
                    digest.update(block)
        except OSError as error:
            raise InputError(
                f"{shown(place)} cannot be read ({error.strerror or 'error'}): check the path"
            ) from None
        return digest.hexdigest()

    def seal_key(self, context: Mapping[str, Any]) -> bytes:
        """Key of one sealed file. `context["generation"]` picks the master; without it, the newest.

        A batch that was added by itself has a random secret beside it, without which nobody finds the key again.

        Raises:
            KeysError: the generation is not here, or the batch was forgotten.
        """
        generation = int(context.get("generation", self.generation))
        if not 1 <= generation <= self.generation:
            raise KeysError(
                f"the seal is of key generation {generation}, which is "
                "not here: run `airlock keys restore FILE`"
            )
        key = _derive(self.masters[generation - 1], "seal", canonical_json(context))
        secret = self._batch_secret(str(context.get("fingerprint", "")))
        return _derive(key, "batch", secret) if secret else key

    def _batch_secret(self, fingerprint: str) -> bytes | None:
        if self.batches is None or not fingerprint:
            return None
        if (self.batches / f"{fingerprint}{FORGOTTEN}").exists():
            raise KeysError(
                "this batch was forgotten: its key is destroyed, and its records cannot be read again"
            )
        return _read(self.batches / fingerprint) if (self.batches / fingerprint).exists() else None

    def nights_key(self, horizon: str) -> bytes:
        """Key of what a horizon remembers from night to night: noise. It outlives a rotation, as the horizon does."""
        return _derive(self.masters[0], "nights", horizon.encode())

    def noise_key(self, release_id: str, *, scratch: bool) -> bytes:
        """Key of one release's noise: from the scratch master for public data, from a generation's master
        otherwise.

        A release that was reserved before a rotation keeps its generation: finished later, it must meet the
        same noise.
        """
        master = self.scratch if scratch else self.masters[self.reserved.get(release_id, self.generation) - 1]
        return _derive(master, "noise", release_id.encode())

    def split_key(self, population: str) -> bytes:
        """Key that decides which row positions of a population are held out."""
        return _derive(self.masters[0], "split", population.encode())


def signer(project: Project) -> Signer:
    """The machine's signing key, made at first use: a modeller without any record signs receipts too."""
    path = project.keys / "signing"
    _create(path)
    return Signer(Ed25519PrivateKey.from_private_bytes(_read(path)))


def verify(public_key: bytes, data: bytes, signature: bytes) -> bool:
    """Whether `signature` of `data` was made by the holder of `public_key`."""
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def rotate(project: Project, unfinished: Iterable[str] = ()) -> Keyring:
    """Start a new generation. What is kept is written first, so that a crash in between loses nothing.

    Args:
        project: whose keys.
        unfinished: ids of releases that were reserved and not committed.
    """
    keyring = Keyring.load(project)
    reserved = {**dict.fromkeys(unfinished, keyring.generation), **keyring.reserved}
    write_private(project.keys / RESERVED_FILE, canonical_json(reserved))
    write_private(_old(project) / f"{keyring.generation}.master", keyring.masters[-1])
    write_private(project.keys / "master", secrets.token_bytes(SIZE))
    return Keyring.load(project)


def make_batch_secret(project: Project, fingerprint: str) -> None:
    """Give a batch a secret of its own, unless it has one; what is sealed later needs it."""
    _create(_batches(project) / fingerprint)


def has_batch_secret(project: Project, fingerprint: str) -> bool:
    """Whether a batch can be forgotten by destroying a secret."""
    return (_batches(project) / fingerprint).exists()


def destroy_batch_secret(project: Project, fingerprint: str, when: str) -> None:
    """Overwrite and remove it. That it is gone for good is written down first."""
    path = _batches(project) / fingerprint
    write_private(path.with_name(f"{fingerprint}{FORGOTTEN}"), when.encode())
    if path.exists():
        with path.open("r+b") as file:
            file.write(secrets.token_bytes(SIZE))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
        sync(path.parent)


def exist(project: Project) -> bool:
    """Whether this project has a master key on this machine."""
    return (project.keys / "master").exists()


def _reserved(project: Project) -> dict[str, int]:
    path = project.keys / RESERVED_FILE
    return (
        {str(release): int(generation) for release, generation in json.loads(path.read_text()).items()}
        if path.exists()
        else {}
    )


def _old(project: Project) -> Path:
    return project.keys / "old"


def _batches(project: Project) -> Path:
    return project.keys / "batches"


def _create(path: Path) -> None:
    """Put a fresh key at `path` unless one is there; of two processes that try at once, one key survives."""
    if path.exists():
        return
    fresh = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
    write_private(fresh, secrets.token_bytes(SIZE))
    try:
        os.link(fresh, path)
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    sync(path.parent)


def _read(path: Path) -> bytes:
    secrecy.keep()
    check_private(path.parents[1] if path.parent.name not in ("old", "batches") else path.parents[2])
    try:
        mode, key = path.stat().st_mode, path.read_bytes()
    except FileNotFoundError:
        raise KeysError(
            f"no {path.name} key in {path.parent}: restore your backup (airlock keys restore FILE), or "
            "start with `airlock add` (in a workspace that was taken, only the owner has keys)"
        ) from None
    if stat.S_IMODE(mode) & 0o077:
        raise KeysError(
            f"{path} can be read by other users: run `chmod 600 {shlex.quote(str(path))}` and think of "
            "`airlock keys rotate`"
        )
    if len(key) != SIZE:
        raise KeysError(f"{path} is damaged: run `airlock keys restore FILE` with your backup")
    return key


def _derive(master: bytes, purpose: str, context: bytes = b"") -> bytes:
    """HKDF-SHA256; the purpose keeps keys of different uses apart."""
    return HKDF(hashes.SHA256(), SIZE, salt=None, info=f"airlock/1/{purpose}\0".encode() + context).derive(
        master
    )
