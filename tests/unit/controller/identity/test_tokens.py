"""`beamer token`: keys and tokens, and that neither is shown where it should not be."""

import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from beamer.cli import main
from beamer.client.credentials import authorization
from beamer.errors import InputError
from controller.identity.tokens import (
    ALLOWED,
    DAY_S,
    Claims,
    Permission,
    TokenError,
    TokenKey,
    TokenRole,
    make_key,
    read_key,
    read_token,
    sign_token,
)

Run = Callable[..., str]
KEY = TokenKey(bytes(range(32)))


@pytest.fixture
def token(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    def run(*options: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["beamer", "token", *options])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capfd.readouterr()
        assert (ended.value.code or 0) == code, printed
        return printed.err if code else printed.out

    return run


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_key(tmp_path / "token.key")
    return tmp_path / "token.key"


def test_a_new_key_is_random_its_owners_alone_and_replaces_none(token: Run, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert token("--new-key", str(tmp_path / name)) == ""
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert read_key(tmp_path / "one", "key") != read_key(tmp_path / "two", "key")
    before = (tmp_path / "one").read_bytes()
    assert "not overwritten" in token("--new-key", str(tmp_path / "one"), code=2)
    assert (tmp_path / "one").read_bytes() == before


def test_a_token_is_one_that_the_client_takes_and_the_controller_reads(token: Run, key: Path) -> None:
    printed = token("--key", str(key), "--study", "mnist", "--role", "trainer", "--days", "2")
    assert printed.count("\n") == 1
    assert authorization(printed.strip(), {})
    claims = read_token(read_key(key, "key"), printed.strip(), time.time())
    assert claims == Claims("mnist", TokenRole.TRAINER)
    with pytest.raises(TokenError, match="expired"):
        read_token(read_key(key, "key"), printed.strip(), time.time() + 2 * DAY_S + 1)


def test_a_token_is_valid_until_it_expires_and_not_then() -> None:
    made = sign_token(KEY, Claims("*", TokenRole.READER), 1000.0, 60.0)
    assert read_token(KEY, made, 1059.9).role is TokenRole.READER
    with pytest.raises(TokenError) as refused:
        read_token(KEY, made, 1060.0)
    assert refused.value.kind == "expired", "the log is limited by kind: another kind's line must not stand for this one"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--key: got None"),
        (("--key", "{key}", "--role", "trainer"), "--study: got None"),
        (("--key", "{key}", "--study", "mnist"), "--role: got None"),
        (("--key", "{key}", "--study", "mnist", "--role", "trainee"), "did you mean 'trainer'?"),
        (("--key", "{key}", "--study", " a", "--role", "trainer"), "study: got ' a'"),
        (("--key", "{key}", "--study", "mnist", "--role", "operator"), "'*', as an operator's token is for every study"),
        (("--key", "{key}", "--study", "mnist", "--role", "trainer", "--days", "0"), "--days: got 0.0"),
        (("--key", "{key}", "--study", "mnist", "--role", "trainer", "--days", "nan"), "--days: got nan"),
        (("--key", "/nowhere/key", "--study", "mnist", "--role", "trainer"), "--key: got '/nowhere/key'"),
        (("--new-key", "/nowhere/key"), "--new-key: got '/nowhere/key'"),
        (("--new-key", "/nowhere/key", "--study", "mnist"), "--study: got 'mnist', expected no such option beside --new-key"),
    ],
)
def test_bad_input_is_one_line(options: tuple[str, ...], said: str, token: Run, key: Path) -> None:
    printed = token(*(option.format(key=key) for option in options), code=2)
    assert said in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("written", ["", "secret-words", "00" * 31, "00" * 33, "zz" * 32, "\xff"])
def test_a_file_that_is_no_key_is_refused_without_showing_it(written: str, tmp_path: Path) -> None:
    path = tmp_path / "token.key"
    path.write_text(written, "latin-1")
    path.chmod(0o600)
    with pytest.raises(InputError, match="beamer token --new-key") as refused:
        read_key(path, "key")
    assert not written or written not in str(refused.value)


def test_a_key_that_everybody_may_read_is_refused_and_a_groups_is_not(key: Path) -> None:
    key.chmod(0o640)
    read_key(key, "key")
    key.chmod(0o644)
    with pytest.raises(InputError, match="chmod o="):
        read_key(key, "key")


@pytest.mark.skipif(os.geteuid() != 0, reason="files are given to others by root")
def test_a_key_that_another_user_has_made_is_refused(key: Path) -> None:
    os.chown(key, 12345, 12345)
    with pytest.raises(InputError, match="not of user 12345"):
        read_key(key, "key")


def test_a_key_does_not_show_itself() -> None:
    assert KEY.secret.hex() not in repr(KEY)
    assert str(KEY.secret) not in repr(KEY)


def test_every_role_may_do_something_and_operators_all() -> None:
    assert set(ALLOWED) == set(TokenRole)
    assert ALLOWED[TokenRole.OPERATOR] == set(Permission)
    assert all(ALLOWED.values())


@pytest.mark.parametrize("role", TokenRole)
def test_a_role_in_one_study_reaches_no_other(role: TokenRole) -> None:
    every = Claims("*", role)
    assert {action for action in Permission if every.permits(action, "any")} == ALLOWED[role]
    if role is not TokenRole.OPERATOR:
        one = Claims("mnist", role)
        assert not any(one.permits(action, other) for action in Permission for other in ("cifar", "*", "", None))
