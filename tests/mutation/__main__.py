"""Mutation testing of the product packages: `python -m tests.mutation draw`, then `... run`.

The drawn list is `mutants.tsv`, what became of each mutant is in `results.md`.
"""

import argparse
import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from tests.mutation import mutants, trial
from tests.support.checkout import ROOT

FOLDER = Path("/tmp/beamer-mutation")


def main() -> int:
    """Run a command; the status is 1 where a mutant survived or could not be applied."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("draw", help="draw the list again from this tree")
    run = commands.add_parser("run", help="try the listed mutants")
    run.add_argument("--only", type=int, action="append", metavar="NUMBER", help="this mutant, and others named so")
    run.add_argument("--tier", choices=trial.LEVELS, default="short", help="which tests are run at most")
    run.add_argument("--folder", type=Path, default=FOLDER, help="where the copies are made")
    options = parser.parse_args()
    return _draw() if options.command == "draw" else _run(options.only, options.tier, options.folder)


def _draw() -> int:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    mutants.write(mutants.draw(), commit.stdout.strip())
    return 0


def _run(only: list[int] | None, tier: str, folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    copy = trial.Copy(folder)
    left = 0
    for mutant in mutants.read():
        if only and mutant.number not in only:
            continue
        try:
            verdict = trial.attempt(mutant, tier, copy, folder)
        except mutants.ChangedLineError as error:
            print(f"{mutant.number}: not tried: {error}", flush=True)
            left += 1
            continue
        with (folder / "verdicts.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(verdict)) + "\n")
        how = "by a time-out in" if verdict.timed_out else "by"
        print(f"{mutant.number}: {f'killed {how} {verdict.test}' if verdict.test else 'SURVIVED'}", flush=True)
        left += not verdict.test
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
