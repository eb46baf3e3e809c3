"""Committed tables that are older than what they rest on: by the digest in them, else by the history of the repository."""

import json
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.committed import RESULTS
from eval.origin import CONFIGS, MADE_WITH, OF_NO_FIGURE, RESTS_ON, sources_digest
from eval.recheck.in_peers import stale_runs
from eval.resume import ROOT, code, imported_sources

SHOWN = 3  # files or policies that a line names


def older_tables(results: Path = RESULTS, root: Path = ROOT) -> dict[str, str]:
    """Return the tables that rest on sources that have changed since, with what is known of that, in words."""
    found = {}
    for table in RESTS_ON:
        path = results / f"{table}.json"
        if not path.exists():  # It has not been run on the machine that it needs.
            continue
        reasons = list(_peers() if table == "peers" else _reasons(table, path, root))
        if reasons:
            found[table] = "; ".join(reasons)
    return found


def _peers() -> Iterator[str]:
    """Yield whose runs have other keys now."""
    stale = stale_runs()
    if stale:
        yield f"{sum(stale.values())} runs have other keys now, of {_shortened(list(stale))}"


def _reasons(table: str, path: Path, root: Path) -> Iterator[str]:
    recorded = _recorded(json.loads(path.read_text()))
    if recorded:
        unknown = recorded.count(None)
        if unknown:
            yield f"{unknown} parts have no digest, as they were made before digests were recorded"
        changed = sum(one not in (None, sources_digest(table)) for one in recorded)
        if changed:
            yield "its sources have another digest now" + (f", of {changed} parts" if len(recorded) > 1 else "")
        return
    changed_files = changed_since(path, _files(table), root)
    if changed_files is None:
        yield "no digest is recorded in it, and there is no history to compare with"
    elif changed_files:
        yield f"{len(changed_files)} files have changed since: {_shortened(changed_files)}"


def _shortened(names: Sequence[str]) -> str:
    more = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _recorded(document: Mapping[str, Any]) -> list[str | None]:
    """Return the digests that a results file records, of itself or of its claims; none where no part of it has one."""
    claims = document.get("claims", {})
    parts = [one.get(MADE_WITH) for one in (claims.values() if claims else (document,)) if isinstance(one, dict)]
    return [part["sources"] if part else None for part in parts] if any(parts) else []


def _files(table: str) -> list[Path]:
    config = CONFIGS / f"{table}.yaml"
    sources = imported_sources(RESTS_ON[table], without=OF_NO_FIGURE).values()
    return [*sources, *([config] if config.exists() else [])]


def changed_since(path: Path, files: Collection[Path], root: Path = ROOT) -> list[str] | None:
    """Return which files do something else than when `path` was last committed; None without a history.

    A file that was added since counts as well, and one in which only comments, docstrings or the layout have changed does not.
    """
    commit = _git(root, "log", "-1", "--format=%H", "--", str(path))
    if not commit:
        return None
    names = _git(root, "diff", "--name-only", commit.strip(), "--", *map(str, files))
    return None if names is None else sorted(name for name in names.splitlines() if not _is_same(root, commit.strip(), name))


def _is_same(root: Path, commit: str, name: str) -> bool:
    """Say whether a source does the same as in a commit."""
    before = _git(root, "show", f"{commit}:{name}")
    return name.endswith(".py") and bool(before) and code(before) == code((root / name).read_text())


def _git(root: Path, *arguments: str) -> str | None:
    """Return what git prints, None where there is none, or no repository."""
    try:
        done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
