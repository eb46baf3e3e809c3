"""What a driver says that processes hold, by a thread that alone asks it: one that hangs holds up nobody's decisions."""

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from beamer.nvidia.inventory import Inventory, NoGpus

PATIENCE_S = 0.25
"""For how long a reading is waited for: a hundred times what one takes."""

log = logging.getLogger("beamer.nvidia")


@dataclass(frozen=True)
class DriverReading:
    """What a driver said. held: the bytes that each process holds, by process id and UUID of the GPU or slice."""

    inventory: Inventory | NoGpus
    held: Mapping[int, Mapping[str, int]]


class DriverReadings:
    """Asks for readings by a thread, until `close`.

    read: returns one, and may hang. patience_s: as of `PATIENCE_S`.
    """

    def __init__(self, read: Callable[[], DriverReading], patience_s: float = PATIENCE_S) -> None:
        self._read = read
        self._patience_s = patience_s
        self._changed = threading.Condition()
        self._asked = self._answered = 0
        self._last: DriverReading | None = None
        # Somebody has waited in vain since the last answer.
        self._is_late = False
        self._has_said = False
        self._closed = False
        self._thread = threading.Thread(target=self._answer, name="beamer-nvidia", daemon=True)
        self._thread.start()

    def fresh(self) -> DriverReading | None:
        """Return a reading that was begun after this call; None: there was none in time.

        Only the first caller waits for a driver that hangs.
        """
        with self._changed:
            self._asked += 1
            wanted = self._asked
            self._changed.notify_all()
            in_time = self._changed.wait_for(lambda: self._answered >= wanted or self._closed, self._wait_s)
            if in_time:
                return None if self._closed else self._last
            self._is_late = True
            if not self._has_said:
                self._has_said = True
                what = "NVIDIA's driver has not said for %g s what trials hold: until it does, none makes room; see nvidia-smi"
                log.warning(what, self._patience_s)
            return None

    def close(self) -> bool:
        """End the thread; return whether it has ended, as a driver that hangs keeps it."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(self._wait_s)
        return not self._thread.is_alive()

    @property
    def _wait_s(self) -> float:
        return 0.0 if self._is_late else self._patience_s

    def _answer(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked > self._answered or self._closed)
                if self._closed:
                    return
                asked = self._asked
            last: DriverReading | None = None
            try:
                last = self._read()
            except Exception as error:  # noqa: BLE001  Whoever waits is answered, and later readings may do.
                log.warning("NVIDIA's driver cannot be asked what processes hold: %r", error)
            with self._changed:
                self._last, self._answered, self._is_late = last, asked, False
                self._changed.notify_all()
