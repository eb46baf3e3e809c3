"""`beamer fabric build`: the file of a network, made from what a site already has."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from runpy import run_path
from traceback import extract_tb
from typing import Annotated, Any

import typer

from beamer.errors import InputError, nearest, shortened
from beamer.lazy_commands import needs
from beamer.network.fabric_sources.csv_tables import CABLES, NODES
from beamer.network.fabric_sources.netbox_lists import LISTS
from beamer.network.fabric_sources.rows import FabricSettings, SourceTables, fabric_of
from beamer.output_files import check_outputs
from beamer.units import parse_rate
from beamer.yaml_files import read_json, read_text
from controller.commands.fabric import put_out


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


GRAPHS: Mapping[str, Callable[[Path, str], Any]] = {".json": read_json, ".graphml": read_text}
"""How a file of a graph is read, by the end of its name."""


def _read_csv(directory: str, option: str) -> dict[str, str]:
    return {name: read_text(Path(directory, name), option) for name in (NODES, CABLES)}


def _read_netbox(name: str, option: str) -> dict[str, list[Any]]:
    """Return the pages of each list, of a directory with a file for each page, or of one file."""
    path = Path(name)
    if not path.is_dir():
        data = read_json(path, option)
        if not isinstance(data, dict) or not set(data) == set(LISTS):
            raise InputError(option, name, f"a directory, or a mapping of {', '.join(LISTS)} to their pages")
        return {one: [page] for one, page in data.items()}
    found = {}
    for one in LISTS:
        numbered = [(int(match[1] or 0), file) for file in path.iterdir() if (match := _page_of(one).fullmatch(file.name))]
        if not numbered:
            raise InputError(option, name, f"a file {one}.json, or its pages {one}-1.json, {one}-2.json and so on")
        found[one] = [read_json(file, option) for _, file in sorted(numbered)]
    return found


def _read_graph(name: str, option: str) -> Any:
    """Return the text of a GraphML file, or what a file in node-link JSON has."""
    path = Path(name)
    if path.suffix not in GRAPHS:
        raise InputError(option, name, f"a file name that ends in {' or '.join(GRAPHS)}")
    return GRAPHS[path.suffix](path, option)


def _run_topology(value: str, option: str) -> Any:
    """Run the file of a topology and return what it calls by a name, called where it is a class or a function.

    Raises `InputError`, also for whatever is raised there.
    """
    file, _, name = value.rpartition(":")
    if not file or not name:
        raise InputError(option, value, "FILE.py:NAME, a file and the name of a topology in it")
    read_text(Path(file), option)
    with _errors_named(file, value, option):
        found = run_path(file)
    known = {**found.get("topos", {}), **{key: one for key, one in found.items() if not key.startswith("_")}}  # as mn --custom
    if name not in known:
        raise InputError(option, name, nearest(name, known))
    with _errors_named(file, value, option):
        return known[name]() if callable(known[name]) else known[name]


@contextmanager
def _errors_named(file: str, value: str, option: str) -> Iterator[None]:
    """Raise `InputError` for what a file of Python raises, with the line there that it came from."""
    try:
        yield
    except (Exception, SystemExit) as error:
        said = " ".join(str(error).split())
        numbers = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == file]
        if isinstance(error, SyntaxError) and error.filename == file:
            said, numbers = error.msg, [error.lineno]
        at = f" on line {numbers[-1]}" if numbers else ""
        what = f"{type(error).__name__}: {shortened(said)}" if said else type(error).__name__
        raise InputError(option, value, f"a file and a topology of it that run without an error ({what}{at})") from error


def _page_of(name: str) -> re.Pattern[str]:
    return re.compile(rf"{name}(?:[-_.]?([0-9]{{1,9}}))?\.json")


SOURCES = {
    "--csv": FabricSource(_read_csv, "beamer.network.fabric_sources.csv_tables:csv_tables"),
    "--netbox": FabricSource(
        _read_netbox,
        "beamer.network.fabric_sources.netbox:netbox_tables",
        options={"hosts": "--hosts", "switches": "--switches"},
    ),
    "--networkx": FabricSource(_read_graph, "beamer.network.fabric_sources.networkx_graph:file_tables"),
    "--mininet": FabricSource(
        _run_topology,
        "topologies.emulation.mininet_tables:mininet_tables",
        extra="emulation",
        options={"auto_macs": "--auto-macs"},
    ),
}
"""Every source, by the option that names it."""


def _chosen(given: Mapping[str, Any]) -> str:
    """Return the option of the only source that is given. Raises `InputError`, also for an option that is of another source."""
    chosen = [option for option in SOURCES if option in given]
    if len(chosen) != 1:
        raise InputError("source", " ".join(chosen) or None, f"one of {', '.join(SOURCES)}")
    (option,) = chosen
    for other, source in SOURCES.items():
        for one in source.options.values():
            if other != option and one in given:
                raise InputError(one, given[one], f"no value, as it is of {other}")
    return option


def build(
    csv: Annotated[Path | None, typer.Option(metavar="DIR", help=f"A directory with {NODES} and {CABLES}.")] = None,
    netbox: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A directory with NetBox's lists in JSON, or a file with all.")
    ] = None,
    networkx: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A NetworkX graph as node-link JSON (.json) or GraphML (.graphml).")
    ] = None,
    mininet: Annotated[
        str | None, typer.Option(metavar="FILE.py:NAME", help="A Mininet topology: a Topo in a file of Python, which is run.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the network.  [default: the source's, or its file's]")] = None,
    rate: Annotated[str | None, typer.Option(help="Of every cable that the source has no rate of, such as 100gbit.")] = None,
    planes: Annotated[int | None, typer.Option(help="Paths between two hosts, as many as spines.  [default: 1]")] = None,
    mtu: Annotated[int | None, typer.Option(help="Of every link, bytes.  [default: 1500]")] = None,
    hosts: Annotated[list[str] | None, typer.Option(metavar="SLUG", help="The role or a tag of hosts in NetBox.")] = None,
    switches: Annotated[list[str] | None, typer.Option(metavar="SLUG", help="The role or a tag of switches there.")] = None,
    auto_macs: Annotated[
        bool, typer.Option("--auto-macs", help="The Mininet network is started with autoSetMacs, as by mn --mac.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Write the file there.  [default: print it]", dir_okay=False)] = None,
) -> None:
    """Make the file of a network from what a site already has, such as CSV tables, and check it as a controller does.

    Give one source. What it lacks is named with its row, and nothing is guessed.
    """
    sources = {"--csv": csv, "--netbox": netbox, "--networkx": networkx, "--mininet": mininet}
    given = {**sources, "--hosts": hosts, "--switches": switches, "--auto-macs": auto_macs}
    option = _chosen({name: value for name, value in given.items() if value})
    settings = FabricSettings(name, None if rate is None else parse_rate(rate, "--rate"), planes, mtu)
    check_outputs({"--output": output})
    tables = SOURCES[option].tables(option, str(given[option]), given)
    fabric = fabric_of(tables, settings.over(FabricSettings(tables.settings.name or Path(str(given[option])).resolve().stem)))
    put_out(fabric, output)
