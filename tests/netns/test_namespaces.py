"""Network namespaces of tests are like those of emulated hosts."""

from pathlib import Path

import pytest

from tests.support.namespaces import cabled_namespaces
from topologies.emulation.socket_tables import CHILD_TABLES, TABLE_ENTRIES

pytestmark = pytest.mark.netns
OWN_TABLE = Path("/proc/sys/net/ipv4/tcp_ehash_entries")  # Below 0 where a namespace shares the table of another one.


def test_each_has_a_small_table_of_sockets_of_its_own() -> None:
    if not CHILD_TABLES.exists():
        pytest.skip("Linux before 6.1 has one table for all network namespaces")
    with cabled_namespaces("one", "other") as spaces:
        assert [int(space.call(OWN_TABLE.read_text)) for space in spaces] == [TABLE_ENTRIES] * 2
