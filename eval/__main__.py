"""`python -m eval EXPERIMENT`: runs an experiment and prints its table; every figure is measured in the run that reports it."""

import sys

import typer
import yaml
from pydantic import ValidationError

from beamer.errors import BeamerError, InputError, PlatformError
from beamer.validation import input_error
from eval.bench import bench
from eval.gpu.command import gpu
from eval.gpu.processes import processes
from eval.network import network
from eval.sct import sct

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback()
def experiments() -> None:
    """Experiments, one command each."""


app.command()(bench)
app.command()(gpu)
app.command()(network)
app.command()(processes)
app.command()(sct)


def main() -> None:
    """Run the command line; what goes wrong ends in one line: bad input and missing parts with exit code 2, the rest with 1."""
    try:
        app()
    except ValidationError as error:
        _fail(input_error(error), 2)
    except yaml.YAMLError as error:
        _fail(" ".join(str(error).split()), 2)
    except BeamerError as error:
        _fail(error, 2 if isinstance(error, InputError | PlatformError) else 1)


def _fail(error: object, code: int) -> None:
    print(f"eval: {error}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
