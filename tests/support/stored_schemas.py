"""The JSON schemas of what the journal stores: of each kind of event and each part of a snapshot, in its present version.

`python -m tests.support.stored_schemas` writes those that are not in `tests/unit/studies/schemas` yet, and changes none.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from beamer.gpu import ledger as gpu_ledger
from beamer.network import ledger as network_ledger
from beamer.studies import events
from beamer.studies import registry_state as known_state
from beamer.studies.tracker import STUDIES, TIME
from beamer.studies.versions import Versioned
from controller.liveness import leases
from tests.support.checkout import ROOT

SCHEMAS = ROOT / "tests" / "unit" / "studies" / "schemas"
PROSE = ("title", "description")
ALWAYS_STORED = ("default", "required")
"""What is stored has every field, so that defaults say nothing about it."""


def stored() -> dict[str, tuple[Versioned, TypeAdapter[Any]]]:
    """Return all that is stored by the name of its present version's schema, with what reads and writes it."""
    found: list[tuple[str, Versioned, TypeAdapter[Any]]] = [
        ("", cls.versioned, events._adapter(cls)) for cls in events._KINDS.values()
    ]
    found += [
        ("snapshot.", STUDIES, known_state._ADAPTER),
        ("snapshot.", TIME, TypeAdapter(float)),
        ("snapshot.", network_ledger.NetworkLedger.part(), network_ledger._STATE),
        ("snapshot.", gpu_ledger.GpuLedger.part(), gpu_ledger._STATE),
        ("snapshot.", leases.LEASES, leases._STATE),
    ]
    return {group + versioned.stored_name: (versioned, adapter) for group, versioned, adapter in found}


def schema(adapter: TypeAdapter[Any]) -> Any:
    """Return the JSON schema of what an adapter reads, without prose and defaults."""
    return _bare(adapter.json_schema())


def file_of(name: str) -> Path:
    """Return the file of a schema."""
    return SCHEMAS / f"{name}.json"


def _bare(value: Any, names: bool = False) -> Any:
    """Return a schema without prose and defaults. names: whether the keys are names of fields, and not JSON schema's own."""
    if isinstance(value, Mapping):
        left_out = () if names else (*PROSE, *ALWAYS_STORED)
        kept = {key: inner for key, inner in value.items() if key not in left_out}
        return {key: _bare(inner, not names and key in ("properties", "$defs")) for key, inner in kept.items()}
    return [_bare(inner) for inner in value] if isinstance(value, list) else value


def main() -> None:
    """Write the schemas that are missing."""
    for name, (_, adapter) in stored().items():
        if not file_of(name).exists():
            file_of(name).write_text(json.dumps(schema(adapter), indent=1, sort_keys=True) + "\n")
            print(f"written: {file_of(name).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
