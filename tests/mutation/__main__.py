"""Mutation testing of the product packages: `python -m tests.mutation draw`, then `... run`.

The drawn list is `mutants.tsv`, what became of each mutant is in `results.md`.
"""

import argparse
import subprocess
import sys

from tests.mutation import mutants
from tests.support.checkout import ROOT


def main() -> int:
    """Run a command; the status is 1 where a mutant survived or could not be applied."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("draw", help="draw the list again from this tree")
    parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=True, capture_output=True, text=True)
    mutants.write(mutants.draw(), commit.stdout.strip())
    return 0


sys.exit(main())
