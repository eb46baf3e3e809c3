"""A deployment's own certificate authority: it signs the certificates of controller, agents and switches.

Its key signs nothing but these, needs to be nowhere but where certificates are made, and is made once. A certificate says
what it is for: the controller's that it serves, the others' that they are clients, so that none passes for the controller.
Where the controller connects to databases of switches, these serve as well, and it is a client of theirs. Such a switch passes
for the controller with other switches, whose Open vSwitch asks for no name; not with agents, who do.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from beamer.errors import InputError
from controller.identity.secret_files import create_secret, read_secret, replace_secret

AUTHORITY = "ca"
AUTHORITY_DAYS = 3650  # Replacing the authority means new certificates everywhere at once.
_CLOCKS = timedelta(minutes=5)  # The clocks of machines may differ by so much.


@dataclass(frozen=True)
class KeyFiles:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Subject:
    """What a certificate is made for: the names of its files, the identity in it, and a server's DNS names and addresses."""

    name: str
    uris: tuple[str, ...] = ()
    dns: tuple[str, ...] = ()
    ips: tuple[str, ...] = ()
    has_both_parts: bool = False
    """Whether it both serves and connects, as controller and switch do where the switch has a database."""

    @property
    def usages(self) -> list[x509.ObjectIdentifier]:
        """What its certificate is for: to serve those that know it by name or address, or to connect."""
        serves, connects = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
        if self.has_both_parts:
            return [serves, connects]
        return [serves if self.dns or self.ips else connects]

    def alternative_names(self) -> Iterator[x509.GeneralName]:
        """Yield them as a certificate has them. Raises `InputError` for one that cannot stand in a certificate."""
        yield from map(x509.UniformResourceIdentifier, self.uris)
        for name in self.dns:
            try:
                yield x509.DNSName(name)
            except ValueError as error:
                raise InputError("--name", name, f"a DNS name, in ASCII ({error})") from error
        for ip in self.ips:
            try:
                yield x509.IPAddress(ipaddress.ip_address(ip))
            except ValueError as error:
                raise InputError("--ip", ip, "an IP address") from error


class Authority:
    """Signs certificates in a directory; `certificate` is the file that those who trust it need."""

    def __init__(self, directory: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self.directory = directory
        self.certificate = files_of(directory, AUTHORITY).certificate
        self._certificate = certificate
        self._key = key

    @classmethod
    def make(cls, directory: Path, now: datetime) -> "Authority":
        """Make a new one, its key in a new file. Raises `InputError` if there is one."""
        files = files_of(directory, AUTHORITY)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Beamer certificate authority")])
        builder = _builder(name, name, key.public_key(), now, now + timedelta(days=AUTHORITY_DAYS))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_usage(signs=True), critical=True)
        certificate = builder.sign(key, hashes.SHA256())
        create_secret(files.key, _pem(key), "directory")
        replace_secret(files.certificate, certificate.public_bytes(serialization.Encoding.PEM), "directory")
        return cls(directory, certificate, key)

    @classmethod
    def load(cls, directory: Path) -> "Authority":
        """Return the one whose files are there. Raises `InputError` if they cannot be used."""
        files = files_of(directory, AUTHORITY)
        pem = read_secret(files.key, "directory")
        try:
            key = serialization.load_pem_private_key(pem, None)
            certificate = _certificate_in(files.certificate)
        except (TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise _unusable(files) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
            raise _unusable(files)
        return cls(directory, certificate, key)

    @property
    def expires(self) -> datetime:
        """When it, and so all that it has signed, is no longer valid."""
        return self._certificate.not_valid_after_utc

    def issue(self, subject: Subject, now: datetime, expires: datetime) -> KeyFiles:
        """Return a new key with a certificate, in the place of those that the subject may have had."""
        files = files_of(self.directory, subject.name)
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject.name)])
        builder = _builder(name, self._certificate.subject, key.public_key(), now, min(expires, self.expires))
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(subject.usages), critical=False)
        builder = builder.add_extension(_issuer(self._certificate), critical=False)
        if names := list(subject.alternative_names()):
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        signed = builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        replace_secret(files.certificate, signed, "directory")
        replace_secret(files.key, _pem(key), "directory")
        return files

    def kept(self, subject: Subject) -> datetime | None:
        """Return until when a subject's certificate, which it has with its key, is valid; None if it has not both.

        Raises `InputError` if it is another authority's, or for other names.
        """
        files = files_of(self.directory, subject.name)
        if not files.key.exists():
            return None
        if not files.certificate.exists():
            raise InputError("directory", str(files.key), "no key without its certificate; --renew makes both anew")
        try:
            certificate = _certificate_in(files.certificate)
            certificate.verify_directly_issued_by(self._certificate)
            key = serialization.load_pem_private_key(read_secret(files.key, "directory"), None)
            names = set(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
            usages = set(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
            is_for = names == set(subject.alternative_names()) and usages >= set(subject.usages)
            good = key.public_key() == certificate.public_key() and is_for
        except InputError:
            raise
        except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound) as error:
            expected = f"a certificate of this authority, and its key ({type(error).__name__})"
            raise InputError("directory", str(files.certificate), expected) from error
        if not good:
            wanted = ", ".join((*subject.uris, *subject.dns, *subject.ips))
            if subject.has_both_parts:
                wanted += ", to serve and to connect"
            raise InputError("directory", str(files.certificate), f"a certificate of its key for {wanted}; --renew makes one")
        return certificate.not_valid_after_utc


def files_of(directory: Path, name: str) -> KeyFiles:
    """Return where a certificate of that name and its key are."""
    return KeyFiles(directory / f"{name}.pem", directory / f"{name}-key.pem")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, expires: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - _CLOCKS)
        .not_valid_after(expires.astimezone(UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _issuer(certificate: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    own = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    unencrypted = serialization.NoEncryption()  # Services start without anybody there to enter a password.
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, unencrypted)


def _unusable(files: KeyFiles) -> InputError:
    return InputError("directory", str(files.key), f"the key, on an elliptic curve, of {files.certificate.name}")


def _certificate_in(path: Path) -> x509.Certificate:
    """Return the certificate in a file, which is no secret. Raises `InputError` and `ValueError`."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise InputError("directory", str(path), f"a file that can be read ({error.strerror})") from error
