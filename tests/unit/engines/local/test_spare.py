"""Whether a machine has something to spare, by files as the kernel writes them."""

import os
from pathlib import Path

from beamer.engines.local.spare import FREE_MEMORY, IDLE_PROCESSORS, OF_EACH_START, WINDOW_S, SpareCapacity

TICKS = os.sysconf("SC_CLK_TCK")


def used(proc: Path, idle_s: float, available: float = 0.9) -> None:
    """Write what the kernel says: for how long processors were idle, and what memory is available."""
    times = (100, 0, 100, round(idle_s * TICKS), 1000 * TICKS, 7, 7)
    (proc / "stat").write_text(f"cpu  {' '.join(map(str, times))}\ncpu0 1 2 3 4 5\n")
    (proc / "meminfo").write_text(f"MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: {round(1000 * available)} kB\n")


def test_a_processor_that_is_idle_is_given_once_in_a_while(tmp_path: Path) -> None:
    spare = SpareCapacity(tmp_path)
    used(tmp_path, 0.0)
    assert not spare.suffices(10.0), "nothing was seen before"
    used(tmp_path, 1.2 * IDLE_PROCESSORS * WINDOW_S)
    assert not spare.suffices(10.0 + WINDOW_S / 2), "that was too short a time"
    assert spare.suffices(10.0 + WINDOW_S)
    used(tmp_path, 100.0)
    assert not spare.suffices(10.0 + 1.5 * WINDOW_S), "what was started does not show yet"
    assert spare.suffices(10.0 + 2 * WINDOW_S)


def test_what_was_idle_long_ago_does_not_count(tmp_path: Path) -> None:
    spare = SpareCapacity(tmp_path)
    used(tmp_path, 0.0)
    assert not spare.suffices(0.0)
    used(tmp_path, 100.0)
    assert not spare.suffices(3 * WINDOW_S)
    assert not spare.suffices(4 * WINDOW_S), "nothing was idle since"


def test_busy_processors_are_not_given(tmp_path: Path) -> None:
    spare = SpareCapacity(tmp_path)
    used(tmp_path, 5.0)
    assert not spare.suffices(0.0)
    used(tmp_path, 5.0 + 0.9 * IDLE_PROCESSORS * WINDOW_S)
    assert not spare.suffices(WINDOW_S)


def test_memory_stays_free(tmp_path: Path) -> None:
    for available in (0.9 * FREE_MEMORY, 1.1 * FREE_MEMORY):
        spare = SpareCapacity(tmp_path)
        used(tmp_path, 0.0, available=available)
        assert not spare.suffices(0.0)
        used(tmp_path, 100.0, available=available)
        assert spare.suffices(WINDOW_S) is (available >= FREE_MEMORY)


def test_those_that_still_start_will_take_memory(tmp_path: Path) -> None:
    for starting in (0, 3):
        spare = SpareCapacity(tmp_path)
        used(tmp_path, 0.0, available=FREE_MEMORY + 2 * OF_EACH_START)
        assert not spare.suffices(0.0, starting)
        used(tmp_path, 100.0, available=FREE_MEMORY + 2 * OF_EACH_START)
        assert spare.suffices(WINDOW_S, starting) is (starting == 0)


def test_limits_of_control_groups_count(tmp_path: Path) -> None:
    """A group above this process's has a limit, of which what files have cached is not used up."""
    groups, own = tmp_path / "groups", tmp_path / "groups" / "above" / "own"
    own.mkdir(parents=True)
    used(tmp_path, 0.0)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text("1:name=systemd:/elsewhere\n0::/above/own\n")
    (own / "memory.max").write_text("max\n")
    (own / "memory.current").write_text("990\n")
    spare = SpareCapacity(tmp_path, groups)
    assert not spare.is_short_of_memory()
    for cached, is_short in ((0, True), (500, False)):
        (groups / "above" / "memory.max").write_text("1000\n")
        (groups / "above" / "memory.current").write_text("990\n")
        (groups / "above" / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\nactive_file 7\n")
        assert spare.is_short_of_memory() is is_short


def test_this_machine_is_read() -> None:
    spare = SpareCapacity()
    assert not spare.suffices(0.0)
    assert spare.suffices(WINDOW_S) in (True, False)
    assert spare.is_short_of_memory() in (True, False)
