"""Certificates for tests of TLS: an authority of one's own, and what it signs."""

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID = timedelta(days=1)


class Authority:
    """A certificate authority; its own certificate is in the file `ca`."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        self._directory = directory
        self._name = name
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._certificate = self._signed(name, self._key, None)
        self.ca = directory / f"{name}.pem"
        self.ca.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, host: str, passphrase: bytes | None = None) -> tuple[Path, Path]:
        """Return the files of a certificate for `host` and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._signed(host, key, host)
        cert_path, key_path = (self._directory / f"{self._name}-{host}.{kind}" for kind in ("crt", "key"))
        cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        how = serialization.BestAvailableEncryption(passphrase) if passphrase else serialization.NoEncryption()
        key_path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))
        return cert_path, key_path

    def server_context(self, host: str, *, ask: bool = False) -> ssl.SSLContext:
        """Return a server's context. ask: for a certificate of this authority's from clients."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*self.issue(host))
        if ask:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _signed(self, name: str, key: ec.EllipticCurvePrivateKey, host: str | None) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, self._name)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _VALID)
            .not_valid_after(now + _VALID)
            .add_extension(x509.BasicConstraints(ca=host is None, path_length=None), critical=True)
        )
        if host is not None:
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        return builder.sign(self._key, hashes.SHA256())
