"""The events of the journal."""

import inspect

import beamer.gpu.ledger
import beamer.network.ledger  # noqa: F401  # Their events are known once they are imported.
from beamer.studies import events
from beamer.studies.events import Event
from beamer.studies.wakes import Wakes
from reference.fields import attribute_docstrings, documented
from reference.tables import code, table


def kinds() -> list[type[Event]]:
    """Return every kind of event that the journal has, by name."""
    return [one for _, one in sorted(events._KINDS.items()) if one.__module__.startswith("beamer.")]


def page() -> str:
    """Return the page of events."""
    parts = [
        """# Events

Everything that happens is an event. The journal holds them in order, and all that a controller knows follows from them. Each
has the Unix time at which it was taken in, `at_s`. *Wakes* says what is due after it:
""",
        table(("wakes", "what is due"), [(code(name), text) for name, text in attribute_docstrings(Wakes).items()]),
    ]
    for kind in kinds():
        wakes = ", ".join(f"`{one.name}`" for one in kind.wakes) or "nothing"
        rows = [(code(one.name), code(one.kind), code(one.default)) for one in documented(kind) if one.name != "at_s"]
        parts.append(f"## {kind.__name__}\n\n{inspect.getdoc(kind)}\n\nVersion {kind.versioned.version}; wakes {wakes}.\n")
        if rows:
            parts.append(table(("field", "type", "default"), rows))
    return "\n".join(parts)
