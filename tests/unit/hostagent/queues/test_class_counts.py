"""Messages of the kernel about classes, laid out as in linux/rtnetlink.h and linux/pkt_sched.h."""

import struct

from hostagent.queues.class_counts import ClassCount, parse_class

HANDLE = 0x1_0012


def attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def message(*attributes: bytes) -> bytes:
    return struct.pack("=BxxxiIII", 0, 7, HANDLE, 0x1_0001, 0) + b"".join(attributes)


def test_the_counters_of_a_class_are_read_whatever_else_is_said_of_it() -> None:
    kind, options = attribute(1, b"htb\0"), attribute(2, bytes(60))
    stats = struct.pack("=QIIIIIII", 1 << 40, 30, 5, 6, 7, 8, 9, 4_000) + bytes(4)
    text = bytes(16) + message(kind, options, attribute(3, stats), attribute(7, bytes(44)))
    assert parse_class(text, 16, len(text)) == (HANDLE, ClassCount(1 << 40, 30, 5, 4_000))


def test_a_class_without_counters_has_sent_nothing() -> None:
    text = message(attribute(1, b"htb\0"))
    assert parse_class(text, 0, len(text)) == (HANDLE, ClassCount(0, 0, 0, 0))
