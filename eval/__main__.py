"""`python -m eval EXPERIMENT`: runs an experiment and prints its table; every figure is measured in the run that reports it."""

import typer

from beamer.errors import InputError
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

if __name__ == "__main__":
    try:
        app()
    except InputError as error:
        raise SystemExit(f"eval: {error}") from error
