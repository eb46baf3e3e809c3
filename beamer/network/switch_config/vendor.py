"""What there is to know of a maker of switches, and the comment that each configuration begins with."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from textwrap import wrap

from beamer.network.switch_config.queue_map import PortQueues, QueueMap

_WIDTH = 120


@dataclass(frozen=True)
class SwitchVendor:
    """A maker's switches.

    title: the switches and the version that the documents are of. port: their queues. commands: the lines of a configuration,
    of a map and the ports. sources: the documents that have the syntax. unconfirmed: what they leave open. roce: what becomes
    of RoCE's queue. ports: an example of the ports that a configuration names, empty where it names none. comment: what is
    before and behind a line of comment.
    """

    title: str
    port: PortQueues
    commands: Callable[[QueueMap, str], list[str]]
    sources: tuple[str, ...]
    roce: str
    unconfirmed: tuple[str, ...] = ()
    ports: str = ""
    comment: tuple[str, str] = ("! ", "")


def rendered(vendor: SwitchVendor, found: QueueMap, ports: str) -> str:
    """Return a configuration, its comment first. ports: as the switch names them."""
    before, behind = vendor.comment
    comment = [f"{before}{line}{behind}" for text in _comment(vendor, found) for line in wrap(text, _WIDTH)]
    return "\n".join([*comment, *vendor.commands(found, ports)]) + "\n"


def numbers(dscps: tuple[int, ...], between: str = " ") -> str:
    """Return numbers as a text."""
    return between.join(map(str, dscps))


def _comment(vendor: SwitchVendor, found: QueueMap) -> Iterator[str]:
    yield f"Codepoints of Beamer's profile {found.profile} for {vendor.title}. UNTESTED ON HARDWARE."
    yield f"queue {found.control}: network control, DSCP {numbers(found.dscps(found.control))}"
    for queue in found.of_classes:
        yield f"queue {queue}: {_members(found, queue)}"
    if found.roce is not None:
        yield f"queue {found.roce}: RoCE, DSCP {numbers(found.dscps(found.roce))}. {vendor.roce}"
    yield f"queue {found.other}: everything else. It is guaranteed nothing: classes that fill a link leave it none."
    have, of = len(found.of_classes), len(found.classes)
    if have < of:
        yield (
            f"Only {have} queues are left for {of} classes, so the least urgent share queue {found.of_classes[-1]}. "
            f"With beamer-controller --queues {have} no two classes share one."
        )
    if found.roce is None and vendor.port.roce in found.of_classes:
        yield f"Queue {vendor.port.roce} must not be lossless. Where it is, for RoCE, take the profile precedence-roce."
    yield from (f"Not confirmed: {text}" for text in vendor.unconfirmed)
    yield from (f"Source: {text}" for text in vendor.sources)


def _members(found: QueueMap, queue: int) -> str:
    texts = [f"class {klass}, DSCP {found.codepoints.of(klass)}" for klass in found.members(queue)]
    if queue == found.classes[0]:
        texts.append(f"acknowledgements, DSCP {found.codepoints.acknowledgement}")
    return "; ".join(texts)
