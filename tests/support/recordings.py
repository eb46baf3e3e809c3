"""What programs of earlier versions said to each other, as `tests.compat.record` has written it down, and their schemas."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs

RECORDED = Path(__file__).parents[1] / "compat" / "recorded"


@dataclass(frozen=True)
class Entry:
    """One message. sender: `client` (an agent, an engine, a trainer), or `server`. kind: `text`, `http`, `close`, `line`."""

    connection: int
    sender: str
    kind: str
    content: str

    @property
    def json(self) -> Any:
        """The message as JSON."""
        return json.loads(self.content)


def entries(name: str, version: str = "0.1.0") -> list[Entry]:
    """Return a recording, in order."""
    found = []
    for line in (RECORDED / version / f"{name}.jsonl").read_text().splitlines():
        values = json.loads(line)
        number, sender = values.pop("connection", 0), values.pop("from")
        ((kind, content),) = values.items()
        found.append(Entry(number, sender, kind, content))
    return found


@cache
def validator(name: str, version: str = "0.1.0") -> Any:
    """Return what raises `jsonschema_rs.ValidationError` for what a program of a version refuses: unknown fields, too."""
    schemas = json.loads((RECORDED / version / "schemas.json").read_text())
    return jsonschema_rs.validator_for(schemas[name])


def check(name: str, message: Any) -> None:
    """Check a message against a version's schema."""
    validator(name).validate(message)


TRAINER = """
import json, signal, sys, time
stops = []
signal.signal(signal.SIGTERM, lambda *_: stops.append(1))
signal.signal(signal.SIGUSR1, lambda *_: None)
for i in range(1, 1000):
    print(json.dumps({"iteration": i, "loss": 1 / i}), flush=True)
    time.sleep(0.05)
    if stops:
        sys.exit(3)
"""
