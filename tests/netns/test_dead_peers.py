"""A real Open vSwitch has its rules while other peers say to be it, and close their connections."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controller.openflow.driver import SERVE_AGAIN_S
from controller.openflow.reports import SwitchConnected, SwitchInstalled
from tests.netns.lab import FABRIC, PORT, Lab, Listener
from tests.support.openflow_samples import features_reply, hello

pytestmark = [pytest.mark.netns, pytest.mark.alone]

SWITCH = FABRIC.switches[0]
PEERS_PER_S = 60
CHANGES = 20  # of a switch's controller, one after the other
# A turn that a dead peer has taken costs one pause, and so does the wait for the next turn, each at most once.
PAUSES_S = 2 * SERVE_AGAIN_S

DEAD_PEERS = """
import socket, sys, time
port, frames, per_s = int(sys.argv[1]), bytes.fromhex(sys.argv[2]), float(sys.argv[3])
print("begun", flush=True)
began, made = time.monotonic(), 0
while True:
    try:
        with socket.create_connection(("127.0.0.1", port), 5) as peer:
            peer.sendall(frames)
            time.sleep(0.002)
    except OSError:
        pass
    made += 1
    time.sleep(max(0.0, began + made / per_s - time.monotonic()))
"""


@contextmanager
def dead_peers(lab: Lab) -> Iterator[None]:
    """Have peers say to be the switch and close, so many a second, until the block ends."""
    frames = (hello() + features_reply(SWITCH.dpid)).hex()
    with lab.python("", DEAD_PEERS, str(PORT), frames, str(PEERS_PER_S)) as process:
        try:
            assert process.stdout
            assert process.stdout.readline() == "begun\n"
            yield
            assert process.poll() is None, "the peers have ended before"
        finally:
            process.kill()


async def change_controller(lab: Lab, *command: str) -> None:
    await asyncio.to_thread(lab.run, "ovs-vsctl", "-t", "20", *command)


async def connect(lab: Lab) -> None:
    """Have the switch connect, which it does at once."""
    settings = ("connection-mode=out-of-band", "max_backoff=1000")
    target = ("set-controller", SWITCH.name, f"tcp:127.0.0.1:{PORT}")
    await change_controller(lab, *target, "--", "set", "controller", SWITCH.name, *settings)


async def installed_after_s(lab: Lab, listener: Listener, changes: int = 1) -> float:
    """Return the seconds from the last change of the switch's controller to its having the rules."""
    loop = asyncio.get_running_loop()
    for _ in range(changes):
        await change_controller(lab, "del-controller", SWITCH.name)
        known = len(listener.events)
        await connect(lab)
    began_s = loop.time()
    async with asyncio.timeout(120):
        while not any(isinstance(e, SwitchInstalled) and e.switch == SWITCH.name for e in listener.events[known:]):
            await asyncio.sleep(0.005)
    return loop.time() - began_s


def measured(lab: Lab, changes: int = 1) -> tuple[float, int]:
    """Return those seconds, and how many connections were served as that switch meanwhile."""

    async def scenario() -> tuple[float, int]:
        async with Listener() as listener:
            await listener.install(1)
            known = len(listener.events)
            took_s = await installed_after_s(lab, listener, changes)
            return took_s, listener.events[known:].count(SwitchConnected(SWITCH.name))

    return lab.drive(scenario)


def test_a_switch_has_its_rules_while_peers_say_to_be_it_and_close(lab: Lab) -> None:
    quiet_s, _ = measured(lab)
    with dead_peers(lab):
        disturbed_s, served = measured(lab)
        assert lab.flows(SWITCH.name)
    assert disturbed_s < quiet_s + PAUSES_S
    assert served <= 2 + disturbed_s / SERVE_AGAIN_S, "at most one turn a pause goes to anybody else"


def test_many_changes_of_a_switchs_controller_cost_no_more_than_one(lab: Lab) -> None:
    quiet_s, _ = measured(lab)
    changed_s, _ = measured(lab, CHANGES)
    assert changed_s < quiet_s + PAUSES_S
