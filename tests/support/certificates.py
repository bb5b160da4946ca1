"""A certificate authority that exists for one test."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Certificates:
    authority: Path
    certificate: Path
    key: Path


def make_certificates(folder: Path) -> Certificates:
    """An authority, and one certificate of it for 127.0.0.1."""
    found = Certificates(folder / "ca.pem", folder / "cert.pem", folder / "key.pem")
    above, below = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("authority", "node")]
    authority = _sign(
        names[0], above.public_key(), names[0], above, x509.BasicConstraints(ca=True, path_length=None)
    )
    certificate = _sign(
        names[1],
        below.public_key(),
        names[0],
        above,
        x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]),
    )
    found.authority.write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    found.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    found.key.write_bytes(below.private_bytes(*plain))
    return found


def _sign(
    subject: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    by: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
    )
    builder = builder.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    return builder.add_extension(extension, critical=True).sign(by, hashes.SHA256())
