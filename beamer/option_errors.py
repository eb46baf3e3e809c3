"""A command line's options: what is no value of an option's type, in the words of Beamer's other errors.

typer has pydantic read values, and passes its words on.
"""

from typing import Any

import typer
from pydantic import ValidationError
from typer.core import TyperCommand

from beamer.errors import shortened
from beamer.validation_messages import expected


class CheckedCommand(TyperCommand):
    """A command of typer's that says what an option expects."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments into a context. Raises `typer.BadParameter`."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            finding = error.__cause__.errors(include_url=False)[0]
            told = f"got {shortened(repr(finding['input']))}, expected {expected(finding)}"
            raise typer.BadParameter(told, ctx=error.ctx, param=error.param) from error
