"""The lists of NetBox's REST API, as they are exported: pages of records, of which the fields that a network needs are read.

The lists are `dcim/devices`, `dcim/interfaces`, `dcim/cables` and `ipam/ip-addresses` of NetBox 3.3 or newer, where a cable has
`a_terminations` and `b_terminations`. A list is a page as the API answers, several pages, or the records alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from beamer.errors import InputError
from beamer.validation import input_error, numbers_alone

LISTS = ("devices", "interfaces", "cables", "ip-addresses")


class _Record(BaseModel):
    """A record, of whose fields only those below are looked at."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    _numbers = numbers_alone


class _Slug(_Record):
    slug: str


class _Reference(_Record):
    id: int


class _Status(_Record):
    value: str


class _MacAddress(_Record):
    mac_address: str


class NetBoxAddress(_Record):
    """An address of `ipam/ip-addresses`, or a device's primary one."""

    id: int
    address: str
    """With the length of its prefix."""
    assigned_object_type: str | None = None
    assigned_object_id: int | None = None


class NetBoxDevice(_Record):
    """A device of `dcim/devices`."""

    id: int
    name: str | None = None
    role: _Slug | None = None
    device_role: _Slug | None = None
    """What NetBox before 3.6 calls its role."""
    tags: tuple[_Slug, ...] = ()
    primary_ip4: NetBoxAddress | None = None
    custom_fields: dict[str, Any] = Field(default_factory=dict)

    @property
    def where(self) -> str:
        """The device as an error names it."""
        return f"devices id {self.id} ({self.name})"

    @property
    def slugs(self) -> frozenset[str]:
        """Those of its role and of its tags."""
        return frozenset(one.slug for one in (self.role, self.device_role, *self.tags) if one is not None)


class NetBoxInterface(_Record):
    """An interface of `dcim/interfaces`."""

    id: int
    device: _Reference
    name: str
    speed: int | None = None
    """In kbit/s."""
    mac_address: str | None = None
    primary_mac_address: _MacAddress | None = None
    mgmt_only: bool = False
    cable: Any = None
    connected_endpoints_type: str | None = None
    connected_endpoints: tuple[_Reference, ...] | None = None
    """Where its path ends, over patch panels as well."""
    custom_fields: dict[str, Any] = Field(default_factory=dict)

    @property
    def mac(self) -> str | None:
        """Its own Ethernet address."""
        return self.mac_address or (self.primary_mac_address.mac_address if self.primary_mac_address else None)


class NetBoxTermination(_Record):
    """What is plugged into an end of a cable."""

    object_type: str
    object_id: int


class NetBoxCable(_Record):
    """A cable of `dcim/cables`."""

    id: int
    a_terminations: tuple[NetBoxTermination, ...]
    b_terminations: tuple[NetBoxTermination, ...]
    status: _Status | None = None

    @property
    def where(self) -> str:
        """The cable as an error names it."""
        return f"cables id {self.id}"


R = TypeVar("R", NetBoxDevice, NetBoxInterface, NetBoxCable, NetBoxAddress)


@dataclass(frozen=True)
class NetBoxExport:
    """What a network needs of NetBox, each by its id."""

    devices: Mapping[int, NetBoxDevice]
    interfaces: Mapping[int, NetBoxInterface]
    cables: Mapping[int, NetBoxCable]
    addresses: Mapping[int, NetBoxAddress]


def read_lists(pages: Mapping[str, Sequence[Any]]) -> NetBoxExport:
    """Return the records of the decoded pages of each list. Raises `InputError` that names the list, the id and the field."""
    return NetBoxExport(
        _by_id("devices", pages, NetBoxDevice),
        _by_id("interfaces", pages, NetBoxInterface),
        _by_id("cables", pages, NetBoxCable),
        _by_id("ip-addresses", pages, NetBoxAddress),
    )


def _by_id(name: str, pages: Mapping[str, Sequence[Any]], model: type[R]) -> dict[int, R]:
    found: dict[int, R] = {}
    for i, record in enumerate(_records(name, pages[name])):
        where = f"{name} id {record['id']}" if isinstance(record, dict) and "id" in record else f"{name}[{i}]"
        try:
            one = model.model_validate(record)
        except ValidationError as error:
            wrong = input_error(error, model)
            raise InputError(f"{where}: {wrong.field}".removesuffix(": "), wrong.value, wrong.expected) from error
        if one.id in found:
            raise InputError(f"{where}: id", one.id, "each record once: a page may be there twice")
        found[one.id] = one
    return found


def _records(name: str, pages: Sequence[Any]) -> list[Any]:
    """Return the records of a list's pages. Raises `InputError` where they are fewer or more than NetBox counted."""
    found, counts = [], set[int]()
    for page in _pages(name, pages):
        if isinstance(page, list):
            found += page
            continue
        if not isinstance(page.get("results"), list) or not isinstance(page.get("count"), int):
            raise InputError(f"{name}: results", sorted(page), "a page of NetBox's REST API, with count and results")
        found += page["results"]
        counts.add(page["count"])
    for count in counts:
        if count != len(found):
            expected = f"all {count} records that NetBox counts: every page, or the whole list by ?limit=0"
            raise InputError(f"{name}: results", len(found), expected)
    return found


def _pages(name: str, pages: Sequence[Any]) -> Iterator[Any]:
    """Yield pages, and lists of records; a file may have a list of pages."""
    for page in pages:
        if isinstance(page, list) and page and all(isinstance(one, dict) and "results" in one for one in page):
            yield from page
        elif isinstance(page, list | dict):
            yield page
        else:
            raise InputError(name, page, "pages of NetBox's REST API, or a list of records")
