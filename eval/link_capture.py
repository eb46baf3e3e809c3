"""`python -m eval.link_capture`: counts the bytes that leave an interface, by sender and short intervals, until SIGTERM comes.

It prints them as JSON: when it began (Unix time), and for each IPv4 sender the bytes of its frames by interval. A frame counts
when the kernel gave it to the interface, by the kernel's own time: this process may see it late.
"""

import json
import signal
import socket
import struct
import sys
import time
from collections import defaultdict

SENDER = slice(26, 30)  # of a frame: behind the Ethernet header, at the 12th byte of IPv4's
IPV4, OUTGOING = 0x0800, 4  # ETH_P_IP; PACKET_OUTGOING, linux/if_packet.h
ALL = 0x0003  # ETH_P_ALL: the kernel shows what leaves to sockets of all protocols alone.
SO_TIMESTAMPNS = 35  # asm-generic/socket.h
TIME = struct.Struct("=qq")
BUFFER_BYTES = 1 << 24  # some seconds of 20 Mbit/s, for which this process may wait for a processor
PATIENCE_S = 0.1


def capture(interface: str, interval_s: float) -> dict[str, object]:
    """Return what left an interface until SIGTERM came."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    counted: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL)) as packets:
        packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        packets.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        packets.bind((interface, ALL))
        packets.settimeout(PATIENCE_S)
        began_s = time.time()
        print("ready", flush=True)
        while not stopped:
            try:
                frame, ancillary, _, (_, protocol, kind, *_) = packets.recvmsg(1 << 16, socket.CMSG_SPACE(TIME.size))
            except TimeoutError:
                continue
            if kind == OUTGOING and protocol == IPV4 and len(frame) >= SENDER.stop:
                seconds, nanoseconds = TIME.unpack(ancillary[0][2])
                left_s = seconds + nanoseconds / 1e9 - began_s
                counted[socket.inet_ntoa(frame[SENDER])][int(left_s / interval_s)] += len(frame)
    length = 1 + max((number for intervals in counted.values() for number in intervals), default=-1)
    return {"began_s": began_s, "bytes": {sender: [of[i] for i in range(length)] for sender, of in counted.items()}}


if __name__ == "__main__":
    print(json.dumps(capture(sys.argv[1], float(sys.argv[2]))))
