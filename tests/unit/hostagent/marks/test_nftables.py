"""What is known of tables of nftables where the program does not answer."""

import os
from pathlib import Path

import pytest

from hostagent.marks import nftables
from hostagent.marks.nftables import NftTimeoutError, removable_tables
from hostagent.rate_limited_log import RateLimitedLog


def test_one_that_does_not_answer_in_time_is_no_sign_that_nothing_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nft").write_text("#!/bin/sh\nexec sleep 5\n")
    (tmp_path / "nft").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(nftables.nft, "__kwdefaults__", {"script": None, "patience_s": 0.1})
    with pytest.raises(NftTimeoutError, match="timed out"):
        removable_tables(RateLimitedLog())
