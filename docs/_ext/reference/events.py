"""The events of the journal."""

import beamer.gpu.ledger
import beamer.network.ledger  # noqa: F401  # Their events are known once they are imported.
from beamer.studies.events import Event
from reference.fields import documented
from reference.tables import code, table


def kinds(base: type[Event] = Event) -> list[type[Event]]:
    """Return every kind of event that the journal has, in the order of their definition."""
    found = []
    for one in base.__subclasses__():
        if hasattr(one, "wakes") and one.versioned.name == one.__name__ and one.__module__.startswith("beamer."):
            found.append(one)
        found += kinds(one)
    return found


def page() -> str:
    """Return the page of events."""
    parts = [
        """# Events

Everything that happens is an event. The journal holds them in order, and all that a controller knows follows from them. Each
has the Unix time at which it was taken in, `at_s`. *Wakes* says what is due after it.
"""
    ]
    for kind in kinds():
        wakes = ", ".join(f"`{one.name}`" for one in kind.wakes) or "nothing"
        rows = [(code(one.name), code(one.kind), code(one.default)) for one in documented(kind) if one.name != "at_s"]
        parts.append(f"## {kind.__name__}\n\n{kind.__doc__}\n\nVersion {kind.versioned.version}; wakes {wakes}.\n")
        if rows:
            parts.append(table(("field", "type", "default"), rows))
    return "\n".join(parts)
