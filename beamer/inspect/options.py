"""Options that the commands about a controller share."""

from typing import Annotated

import typer

from beamer.client.urls import URL, URL_VARIABLE

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url",
        help=f"Of the controller, or of several, separated by commas.  [default: {URL_VARIABLE}, or {URL}]",
    ),
]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
RunOption = Annotated[str | None, typer.Option("--run", help="A run of the study.  [default: the present one]")]
StudyArgument = Annotated[str, typer.Argument(help="A study's name.")]
