"""Messages that are encoded once have the bytes that os-ken gives them."""

from os_ken.ofproto import ofproto_protocol
from os_ken.ofproto import ofproto_v1_3 as ofp
from os_ken.ofproto import ofproto_v1_3_parser as parser

from beamer.testing.fabrics import star
from controller.openflow import wire
from controller.openflow.rules import HostPair, JobRules, Rule, connection_rule, pair_rules

FABRIC = star(2)
LEFT, RIGHT = FABRIC.hosts
DATAPATH = ofproto_protocol.ProtocolDesc(version=ofp.OFP_VERSION)
CONNECTION = LEFT.ip, 1, RIGHT.ip, 2


def rules(klass: int) -> list[Rule]:
    pair = HostPair(3, 0, 1)
    job = JobRules("s/a", 3, 0, klass, frozenset({CONNECTION}), {})
    return [*pair_rules(FABRIC, pair, job, 5), connection_rule(FABRIC, CONNECTION, pair)[1]]


def written(message: parser.OFPFlowMod) -> bytes:
    if message.xid is None:
        message.set_xid(7)
    message.serialize()
    return bytes(message.buf)


def parsed(frame: bytes) -> parser.OFPFlowMod:
    return parser.msg_parser(DATAPATH, ofp.OFP_VERSION, ofp.OFPT_FLOW_MOD, len(frame), 7, frame)


def test_a_message_is_the_same_bytes_every_time_and_is_read_as_it_was_meant() -> None:
    for rule in (*rules(1), *rules(2), *rules(1)):
        first = written(wire.addition(DATAPATH, rule))
        assert written(wire.addition(DATAPATH, rule)) == first
        read = parsed(first)
        assert wire.match_of(read.match) == rule.match
        assert written(read) == first, "as os-ken encodes it"
        gone = parsed(written(wire.removal(DATAPATH, rule)))
        assert (gone.command, wire.match_of(gone.match), gone.instructions) == (ofp.OFPFC_DELETE_STRICT, rule.match, [])
