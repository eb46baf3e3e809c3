"""The dates of certificates, as read without OpenSSL's help, and what is said of them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from beamer.doctor.certificates import CertificateFile, Validity, judge_certificates, read_certificates, validity_of
from beamer.doctor.findings import CheckVerdict
from beamer.errors import InputError
from controller.identity.authority import Authority, Subject

NOW = datetime(2026, 5, 4, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("authority"), NOW)


def verdicts(*files: CertificateFile, now: datetime = NOW) -> list[CheckVerdict]:
    return [one.verdict for one in judge_certificates(files, now)]


@pytest.mark.parametrize("days", [-1, 1, 400, 365 * 9])
def test_dates_are_those_that_another_reader_finds(authority: Authority, days: int) -> None:
    file = authority.issue(Subject(f"agent{days}", ("spiffe://beamer/agent/h1",)), NOW - 2 * DAY, NOW + days * DAY).certificate
    (read,) = read_certificates("--cert", file)
    certificate = x509.load_pem_x509_certificate(file.read_bytes())
    assert read.validities == (Validity(certificate.not_valid_before_utc, certificate.not_valid_after_utc),)
    assert not read.refused


def test_a_time_after_2049_is_read(authority: Authority) -> None:
    with_year = x509.load_pem_x509_certificate(authority.certificate.read_bytes()).public_bytes(Encoding.DER)
    assert validity_of(with_year).ends == NOW + 3650 * DAY
    utc, general = b"\x17\x0d360501000000Z", b"\x18\x0f20600501000000Z"
    body = b"\x02\x01\x01" + b"\x30\x00" * 2 + b"\x30" + bytes([len(utc + general)]) + utc + general
    der = b"\x30" + bytes([len(body) + 2]) + b"\x30" + bytes([len(body)]) + body
    assert validity_of(der) == Validity(datetime(2036, 5, 1, tzinfo=UTC), datetime(2060, 5, 1, tzinfo=UTC))


@pytest.mark.parametrize("der", [b"", b"\x30", b"\x30\x82", b"\x31\x00", b"\x30\x03\x30\x01\x02", bytes(64)])
def test_what_is_no_certificate_is_refused(der: bytes) -> None:
    with pytest.raises(InputError, match="a certificate in DER"):
        validity_of(der)


def test_files_that_hold_none_say_so(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("no certificate")
    (tmp_path / "broken").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    files = [read for name in ("absent", "empty", "broken") for read in read_certificates("--ca", tmp_path / name)]
    assert verdicts(*files) == [CheckVerdict.FAULT] * 3
    assert read_certificates("--ca", None) == []


def file_of(begins: datetime, ends: datetime, signs: bool = False, *more: Validity) -> CertificateFile:
    return CertificateFile("--cert", "/c.pem", (Validity(begins, ends), *more), signs=signs)


@pytest.mark.parametrize(
    ("begins", "ends", "verdict", "said"),
    [
        (-1, 31, CheckVerdict.OK, "is valid until 2026-06-04"),
        (-1, 29, CheckVerdict.WARNING, "expires on 2026-06-02"),
        (-2, -1, CheckVerdict.FAULT, "has expired on 2026-05-03"),
        (1, 90, CheckVerdict.FAULT, "is valid only from 2026-05-05"),
    ],
)
def test_dates_are_judged(begins: int, ends: int, verdict: CheckVerdict, said: str) -> None:
    (found,) = judge_certificates([file_of(NOW + begins * DAY, NOW + ends * DAY)], NOW)
    assert found.verdict is verdict
    assert f"/c.pem (--cert) {said}" in found.found
    assert bool(found.fix) == (verdict is not CheckVerdict.OK)


def test_of_several_authorities_one_suffices_and_of_a_chain_each_certificate_is_needed() -> None:
    old = Validity(NOW - 9 * DAY, NOW - DAY)
    assert verdicts(file_of(NOW - DAY, NOW + 90 * DAY, True, old)) == [CheckVerdict.OK]
    assert verdicts(file_of(NOW - DAY, NOW + 90 * DAY, False, old)) == [CheckVerdict.FAULT]
