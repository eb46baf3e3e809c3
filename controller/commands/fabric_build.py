"""`beamer fabric build`: the file of a network, made from what a site already has."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from beamer.errors import InputError
from beamer.lazy_commands import needs
from beamer.network.fabric_file import people_form
from beamer.network.fabric_sources.csv_tables import CABLES, NODES
from beamer.network.fabric_sources.rows import FabricSettings, SourceTables, fabric_of
from beamer.output_files import check_outputs
from beamer.units import parse_rate
from beamer.yaml_files import dump_yaml, read_text


@dataclass(frozen=True)
class FabricSource:
    """A form in which a site may have its network.

    read: returns what the option's value names; nothing else here has effects. target: the function that turns that into rows,
    as MODULE:NAME. extra: that installs what the function imports. options: those of the command that are of this source alone,
    by the function's parameters.
    """

    read: Callable[[str, str], Any]
    target: str
    extra: str = "controller"
    options: Mapping[str, str] = field(default_factory=dict)

    def tables(self, option: str, value: str, given: Mapping[str, Any]) -> SourceTables:
        """Return the network that an option's value names. Raises `InputError`."""
        module, _, function = self.target.partition(":")
        with needs("fabric build", self.extra):
            call: Callable[..., SourceTables] = getattr(import_module(module), function)
        return call(self.read(value, option), **{name: given[one] for name, one in self.options.items() if given[one]})


def _read_csv(directory: str, option: str) -> dict[str, str]:
    return {name: read_text(Path(directory, name), option) for name in (NODES, CABLES)}


SOURCES = {
    "--csv": FabricSource(_read_csv, "beamer.network.fabric_sources.csv_tables:csv_tables"),
}
"""Every source, by the option that names it."""


def build(
    csv: Annotated[Path | None, typer.Option(metavar="DIR", help=f"A directory with {NODES} and {CABLES}.")] = None,
    name: Annotated[str | None, typer.Option(help="Of the network.  [default: the source's, or its file's]")] = None,
    rate: Annotated[str | None, typer.Option(help="Of every cable that the source has no rate of, such as 100gbit.")] = None,
    planes: Annotated[int | None, typer.Option(help="Paths between two hosts, as many as spines.  [default: 1]")] = None,
    mtu: Annotated[int | None, typer.Option(help="Of every link, bytes.  [default: 1500]")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the file there.  [default: print it]", dir_okay=False)] = None,
) -> None:
    """Make the file of a network from what a site already has, such as CSV tables, and check it as a controller does.

    Give one source. What it lacks is named with its row, and nothing is made up.
    """
    given = {"--csv": csv}
    chosen = [option for option, value in given.items() if value is not None and option in SOURCES]
    if len(chosen) != 1:
        raise InputError("source", " ".join(chosen) or None, f"one of {', '.join(SOURCES)}")
    (option,) = chosen
    settings = FabricSettings(name, None if rate is None else parse_rate(rate, "--rate"), planes, mtu)
    check_outputs({"--output": output})
    tables = SOURCES[option].tables(option, str(given[option]), given)
    fabric = fabric_of(tables, settings.over(FabricSettings(tables.settings.name or Path(str(given[option])).resolve().stem)))
    text = dump_yaml(people_form(fabric), flow=None, width=128)
    if output is None:
        print(text, end="")
    else:
        output.write_text(text, "utf-8")
