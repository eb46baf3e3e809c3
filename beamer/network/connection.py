"""A worker's TCP connection: what host agents report, events record and switch rules match."""

from dataclasses import dataclass

FourTuple = tuple[str, int, str, int]
"""Source address, source port, destination address, destination port: one direction of a connection."""


@dataclass(frozen=True)
class Connection:
    """A TCP connection of a registered worker, as seen from that worker's host."""

    job: str
    rank: int
    local_ip: str
    local_port: int
    remote_ip: str
    remote_port: int

    @property
    def is_local(self) -> bool:
        """Whether both ends are on one host."""
        return self.local_ip == self.remote_ip

    @property
    def sent(self) -> FourTuple:
        """The direction in which the worker sends."""
        return self.local_ip, self.local_port, self.remote_ip, self.remote_port

    @property
    def received(self) -> FourTuple:
        """The direction in which the worker receives."""
        return self.remote_ip, self.remote_port, self.local_ip, self.local_port
