"""Options of both `beamer doctor host` and `beamer doctor switch`."""

from pathlib import Path
from typing import Annotated

import typer

AttachOption = Annotated[Path, typer.Option(help="The agent's Unix socket.")]
