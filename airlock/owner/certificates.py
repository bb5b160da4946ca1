"""Certificates for a Dask cluster of the owner's own: an authority, and one certificate for each role.

The authority's key is never stored: what it signed in one go is all that it will ever sign. Whoever holds one
of the other keys can run code on the workers, so they are as private as the project's other keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from airlock.errors import KeysError
from airlock.owner.home import Project, write_private

MAKE_COMMAND = "airlock keys dask"
# Scheduler and workers speak to each other both ways; the broker only asks.
ROLES = {
    "scheduler": (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
    "worker": (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH),
    "client": (ExtendedKeyUsageOID.CLIENT_AUTH,),
}
USES = (
    *("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement"),
    *("key_cert_sign", "crl_sign", "encipher_only", "decipher_only"),
)
VALIDITY = timedelta(days=365)


@dataclass(frozen=True)
class Certificates:
    """The files of one cluster, below AIRLOCK_HOME."""

    folder: Path

    @property
    def authority(self) -> Path:
        """What everybody trusts."""
        return self.folder / "ca.pem"

    def certificate(self, role: str) -> Path:
        """A role's certificate."""
        return self.folder / f"{role}.pem"

    def key(self, role: str) -> Path:
        """A role's private key."""
        return self.folder / f"{role}.key"

    def holds(self, role: str) -> bool:
        """Whether this machine can take a role."""
        return all(path.exists() for path in (self.authority, self.certificate(role), self.key(role)))


def of(project: Project) -> Certificates:
    """Where a project's certificates are, made or not."""
    return Certificates(project.folder / "dask")


def make(project: Project, *, renew: bool = False) -> datetime:
    """Make all of them at once, and return the time until which they are valid.

    Raises:
        KeysError: there are some, and `renew` was not asked for.
    """
    found = of(project)
    if found.authority.exists() and not renew:
        raise KeysError(
            f"certificates are in {found.folder} already: `{MAKE_COMMAND} --renew` makes new ones, which every "
            "machine of the cluster then needs"
        )
    end, key = datetime.now(UTC) + VALIDITY, ec.generate_private_key(ec.SECP256R1())
    authority = _authority(key, end)
    for role in ROLES:
        own = ec.generate_private_key(ec.SECP256R1())
        write_private(found.key(role), _private(own))
        write_private(found.certificate(role), _public(_signed(role, own, authority, key, end)))
    write_private(found.authority, _public(authority))
    return end


def _authority(key: ec.EllipticCurvePrivateKey, end: datetime) -> x509.Certificate:
    name = _name("authority")
    usage = dict.fromkeys(USES, False) | {"key_cert_sign": True}
    return (
        _builder(name, name, key, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .sign(key, hashes.SHA256())
    )


def _signed(
    role: str,
    key: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    by: ec.EllipticCurvePrivateKey,
    end: datetime,
) -> x509.Certificate:
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key())
    return (
        _builder(_name(role), authority.subject, key, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(ROLES[role]), critical=True)
        .add_extension(identifier, critical=False)
        .sign(by, hashes.SHA256())
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, end: datetime
) -> x509.CertificateBuilder:
    # Clocks of two machines differ; an hour back is enough.
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _name(role: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"airlock {role}")])


def _public(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
