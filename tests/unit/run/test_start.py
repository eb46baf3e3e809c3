"""What `beamer run` loads before its command starts, which waits for that."""

import subprocess
import sys

HEAVY = ("typer", "pydantic", "httpcore", "numpy", "scipy", "regex", "ssl", "asyncio", "beamer.client.client")


def test_nothing_heavy_is_imported_before_the_command_starts() -> None:
    code = f"import sys, beamer.cli, beamer.run.execute; print([one for one in {HEAVY} if one in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
