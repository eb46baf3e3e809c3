"""A driver that hangs or fails is waited for once, by nobody for long, and believed again when it answers."""

import logging
import threading
import time
from collections.abc import Iterator

import pytest

from beamer.nvidia.inventory import Inventory
from beamer.nvidia.readings import DriverReading, DriverReadings

LONG_S = 30.0


class Driver:
    """Answers while it is not held, with how often it was asked."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.answers.set()
        self.fails = False
        self.asked = 0

    def read(self) -> DriverReading:
        self.asked += 1
        count = self.asked
        assert self.answers.wait(LONG_S)
        if self.fails:
            raise OSError("the driver is gone")
        return DriverReading(Inventory(()), {count: {}})


@pytest.fixture
def driver() -> Iterator[Driver]:
    made = Driver()
    yield made
    made.answers.set()


def test_a_reading_is_begun_after_it_is_asked_for(driver: Driver) -> None:
    readings = DriverReadings(driver.read, LONG_S)
    for count in (1, 2, 3):
        reading = readings.fresh()
        assert reading is not None
        assert list(reading.held) == [count]
    assert readings.close()
    assert readings.fresh() is None


def test_a_driver_that_hangs_is_waited_for_once_and_said_once(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    readings = DriverReadings(driver.read, 0.2)
    driver.answers.clear()
    with caplog.at_level(logging.WARNING):
        waited = []
        for _ in range(20):
            begun = time.monotonic()
            assert readings.fresh() is None
            waited.append(time.monotonic() - begun)
        assert waited[0] >= 0.2 > max(waited[1:])
        assert not readings.close(), "its thread is in the driver"
    assert [record.getMessage() for record in caplog.records] == [
        "NVIDIA's driver has not said for 0.2 s what trials hold: until it does, none makes room; see nvidia-smi"
    ]


def test_a_driver_that_answers_again_is_believed(driver: Driver) -> None:
    readings = DriverReadings(driver.read, 0.2)
    driver.answers.clear()
    assert readings.fresh() is None
    driver.answers.set()
    until = time.monotonic() + LONG_S
    while (reading := readings.fresh()) is None and time.monotonic() < until:
        time.sleep(0.01)
    assert reading is not None
    assert readings.close()


def test_what_fails_is_not_known_and_asked_again(driver: Driver, caplog: pytest.LogCaptureFixture) -> None:
    readings = DriverReadings(driver.read, LONG_S)
    driver.fails = True
    with caplog.at_level(logging.WARNING):
        assert readings.fresh() is None
    assert "the driver is gone" in caplog.text
    driver.fails = False
    assert readings.fresh() is not None
    assert readings.close()
