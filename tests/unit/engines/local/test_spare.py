"""Whether a machine has something to spare, by files as the kernel writes them."""

import os
from pathlib import Path

from beamer.engines.local.spare import FREE_MEMORY, IDLE_PROCESSORS, WINDOW_S, SpareCapacity

TICKS = os.sysconf("SC_CLK_TCK")


def used(proc: Path, idle_s: float, waiting_s: float = 0.0, available: float = 0.9) -> None:
    """Write what the kernel says: for how long processors were idle or waited for a disk, and what memory is available."""
    times = (100, 0, 100, round(idle_s * TICKS), round(waiting_s * TICKS), 7, 7)
    (proc / "stat").write_text(f"cpu  {' '.join(map(str, times))}\ncpu0 1 2 3 4 5\n")
    (proc / "meminfo").write_text(f"MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: {round(1000 * available)} kB\n")


def test_a_processor_that_is_idle_is_given_once_in_a_while(tmp_path: Path) -> None:
    spare = SpareCapacity(tmp_path)
    used(tmp_path, 0.0)
    assert not spare.suffices(10.0), "nothing was seen before"
    used(tmp_path, 0.6 * IDLE_PROCESSORS * WINDOW_S, 0.6 * IDLE_PROCESSORS * WINDOW_S)
    assert not spare.suffices(10.0 + WINDOW_S / 2), "that was too short a time"
    assert spare.suffices(10.0 + WINDOW_S)
    used(tmp_path, 100.0)
    assert not spare.suffices(10.0 + 1.5 * WINDOW_S), "what was started does not show yet"
    assert spare.suffices(10.0 + 2 * WINDOW_S)


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


def test_this_machine_is_read() -> None:
    spare = SpareCapacity()
    assert not spare.suffices(0.0)
    spare.suffices(WINDOW_S)
