"""A trace file as a whole: its first line `ports coflows`, a line for every coflow, and what must fit between them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from beamer.errors import InputError, nearest
from beamer.sim.traces import coflow_benchmark, sincronia
from beamer.sim.traces.fields import MAX_PORTS, FieldReader
from beamer.sim.traces.model import Coflow, Trace

FORMATS: dict[str, Callable[[FieldReader, int], Coflow]] = {
    "coflow-benchmark": coflow_benchmark.parse,
    "sincronia": sincronia.parse,
}


def read(path: Path, form: str) -> Trace:
    """Read the trace file at `path`, written in the format named `form`.

    The file numbers its ports from 0, or from 1 if it names the port of the highest number and none 0; the trace, from 0.
    Raises `InputError` that names file, line, field and value.
    """
    if form not in FORMATS:
        raise InputError("format", form, nearest(form, FORMATS))
    lines = _lines(path)
    if not lines:
        raise InputError("trace", str(path), "a first line `ports coflows`")
    first, *others = lines
    ports, count = first.integer("ports", 1, MAX_PORTS), first.integer("coflows", 0)
    first.end()
    if len(others) != count:
        raise first.error("coflows", count, f"{len(others)}, the lines that follow")
    coflows = [FORMATS[form](line, ports) for line in others]
    from_one = any(_names(c, ports) for c in coflows) and not any(_names(c, 0) for c in coflows)
    seen: set[str] = set()
    for line, coflow in zip(others, coflows, strict=True):
        if coflow.id in seen:
            raise line.error("id", coflow.id, "an id that no coflow before it has")
        seen.add(coflow.id)
        if not from_one and _names(coflow, ports):
            raise line.error("port", ports, f"0 to {ports - 1}: the file numbers its ports from 0")
    return Trace(ports, tuple(replace(c, src=c.src - from_one, dst=c.dst - from_one) for c in coflows))


def _lines(path: Path) -> list[FieldReader]:
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise InputError("trace", str(path), f"a readable file ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError("trace", str(path), f"text in UTF-8 ({error.reason} at byte {error.start})") from error
    return [FieldReader(path, number, line.split()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _names(coflow: Coflow, port: int) -> bool:
    return bool(np.any(coflow.src == port) or np.any(coflow.dst == port))
