"""How findings are shown, and what the process ends with."""

import json
import sys
from collections.abc import Iterator, Sequence

from beamer.doctor.findings import CheckVerdict, Finding
from beamer.terminal_text import one_line

_WIDTH = max(map(len, CheckVerdict))
_FAULTY, _NOTHING_EXAMINED = 1, 2

Found = Sequence[tuple[str, Finding]]


def report(role: str, found: Found, as_json: bool) -> None:
    """Print what was found on a machine of a role, and end the process unless nothing is wrong.

    It ends with 1 where there is a fault, and with 2 where nothing could be examined.
    """
    if as_json:
        print(json.dumps(document(role, found), indent=2), flush=True)
    else:
        print("\n".join(lines(found)), flush=True)
    if code := exit_code(found):
        sys.exit(code)


def document(role: str, found: Found) -> dict[str, object]:
    """Return the findings as JSON has them."""
    checks = [{"check": name, "verdict": one.verdict, "found": one.found, "fix": one.fix or None} for name, one in found]
    counts = {verdict.name.lower(): sum(one.verdict is verdict for _, one in found) for verdict in CheckVerdict}
    return {"role": role, "counts": counts, "checks": checks}


def lines(found: Found) -> Iterator[str]:
    """Yield a line for each finding, its fix beneath."""
    for name, one in found:
        yield f"{one.verdict:{_WIDTH}}  {name}: {one_line(one.found)}"
        if one.fix:
            yield f"{'':{_WIDTH}}  fix: {one_line(one.fix)}"


def exit_code(found: Found) -> int:
    """Return what the process ends with."""
    verdicts = {one.verdict for _, one in found}
    if CheckVerdict.FAULT in verdicts:
        return _FAULTY
    return 0 if verdicts - {CheckVerdict.NOT_CHECKED} else _NOTHING_EXAMINED
