"""Asks a switch, as it connects, what its tables can do."""

import asyncio
from collections.abc import Mapping

from os_ken.ofproto import ofproto_v1_3 as ofp

from controller.openflow import wire
from controller.openflow.capabilities import SwitchCapabilities, TableCapabilities, tables_said
from controller.openflow.channel import Channel
from controller.openflow.questions import Question, Questions


async def ask_capabilities(switch: str, channel: Channel, questions: Questions) -> SwitchCapabilities:
    """Return what a switch says of itself. Raises `ChannelError`."""
    said = None
    if questions.may_ask(switch, Question.TABLES):
        with questions.asking(switch, Question.TABLES):
            said = await _ask_tables(channel)
    return SwitchCapabilities(channel.n_tables or ofp.OFPTT_MAX, said)


async def _ask_tables(channel: Channel) -> Mapping[int, TableCapabilities] | None:
    """Return what a switch says of its tables, None where that is nothing. Raises `ChannelError`."""
    asked = asyncio.ensure_future(channel.request(wire.tables_request(channel.datapath)))
    asked.add_done_callback(lambda done: done.cancelled() or done.exception())  # Else an error would count as unseen.
    await asyncio.sleep(0)  # Only then is it sent.
    try:
        # What is answered at all is answered before the barrier (OpenFlow 1.3.5, 6.2): one that is silent delays nothing.
        await channel.request(wire.barrier(channel.datapath))
    finally:
        asked.cancel()
    await asyncio.wait([asked])
    answered = not asked.cancelled() and asked.exception() is None
    return tables_said(asked.result()) if answered else None
