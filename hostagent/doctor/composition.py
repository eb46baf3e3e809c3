"""What the interface of a host is made of, and whether its queues are those in which packets wait."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from beamer.doctor.findings import Finding, Unseen, fault, not_checked, ok, seen, warning
from beamer.network.interface_fitness import ON_ANOTHER, dependence, description, made_of, misnaming, unfitness
from beamer.network.protocol import Interface
from hostagent.doctor.interfaces import AGENTS, DEFAULT, InterfaceFacts, read_interfaces
from hostagent.interfaces import interfaces


@dataclass(frozen=True)
class CompositionFacts:
    """What a machine's interfaces are made of. named: those whose queues its agent makes. below: what these are made of.

    addresses: of the network's hosts, none where they are not known.
    """

    named: tuple[str, ...]
    machine: tuple[Interface, ...]
    below: tuple[InterfaceFacts, ...]
    addresses: frozenset[str] = frozenset()


def read_composition(named: Collection[str], addresses: Collection[str]) -> CompositionFacts:
    """Return what these interfaces are made of. Raises `PlatformError` where the kernel refuses to tell."""
    machine = interfaces()
    below = {part.name: None for one in machine if one.name in named for part in made_of(one, machine)}
    return CompositionFacts(
        tuple(dict.fromkeys(named)),
        machine,
        read_interfaces(name for name in below if name not in named),
        frozenset(addresses),
    )


def judge_composition(facts: CompositionFacts | Unseen) -> Iterator[Finding]:
    """Yield of each interface what it is made of, and whether a host can be in the network by it."""
    made = seen(facts)
    known = {one.name: one for one in made.machine}
    for name in made.named:
        one = known.get(name)
        wrong = misnaming(name, made.machine, made.addresses)
        if wrong is None and one is not None:
            wrong = unfitness(one, made.machine)
        if wrong is not None:
            yield fault(wrong.found, wrong.remedy)
        elif one is None:
            yield not_checked(f"{name} is no Ethernet interface of this network namespace")
        elif (depends := dependence(one, made.machine)) is not None:
            yield warning(depends, "see that the member that is used keeps its link, or use a single card")
        elif one.kind in ON_ANOTHER and one.parent is None:
            yield not_checked(f"{description(one)}: run this there, too")
        else:
            yield ok(_composition(one))
        if one is not None:
            yield from _judge_queues(one, made)


def _composition(one: Interface) -> str:
    if one.members or one.parent is not None:
        return description(one)
    return f"{one.name} is of kind {one.kind}, and made of no other interface" if one.kind else f"{one.name} is a card"


def _judge_queues(one: Interface, made: CompositionFacts) -> Iterator[Finding]:
    """Yield whether packets wait in the queues of an interface, and not in those of what it is made of."""
    roots = {part.name: part.root for part in made.below}
    parts = [part.name for part in made_of(one, made.machine) if part.name != one.name and roots.get(part.name)]
    for name in parts:
        fix = f"tc qdisc del dev {name} root, and keep what has made it from making it again"
        where = f"{name}, of which {one.name} is made,"
        if roots[name] == AGENTS:
            yield fault(f"{where} has an agent's HTB tree: packets wait there, and not in the queues of {one.name}", fix)
        elif roots[name] != DEFAULT:
            yield warning(f"{where} has a root queueing discipline of another program ({roots[name]})", fix)
    if parts and all(roots[name] == DEFAULT for name in parts):
        yield ok(f"packets wait in the queues of {one.name} alone; the kernel's default is at {', '.join(parts)}")
