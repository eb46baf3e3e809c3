"""`python -m eval.link_capture`: counts the bytes that leave an interface, by sender and short intervals, until SIGTERM comes.

It prints them as JSON: when it began (Unix time), and for each IPv4 sender the bytes of its frames by interval.
"""

import json
import signal
import socket
import sys
import time
from collections import defaultdict

ETHERNET_HEADER, SENDER_AT, TO_SENDER = 14, 26, 4
IPV4, OUTGOING = 0x0800, 4  # ETH_P_IP; PACKET_OUTGOING, linux/if_packet.h
ALL = 0x0003  # ETH_P_ALL: the kernel shows what leaves to sockets of all protocols alone.
BUFFER_BYTES = 1 << 24
PATIENCE_S = 0.1


def capture(interface: str, interval_s: float) -> dict[str, object]:
    """Return what left an interface until SIGTERM came."""
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    counted: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL)) as packets:
        packets.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        packets.bind((interface, ALL))
        packets.settimeout(PATIENCE_S)
        began_s, began = time.time(), time.monotonic()
        print("ready", flush=True)
        while not stopped:
            try:
                frame, (_, protocol, kind, *_) = packets.recvfrom(1 << 16)
            except TimeoutError:
                continue
            if kind == OUTGOING and protocol == IPV4 and len(frame) >= SENDER_AT + TO_SENDER:
                sender = socket.inet_ntoa(frame[SENDER_AT : SENDER_AT + TO_SENDER])
                counted[sender][int((time.monotonic() - began) / interval_s)] += len(frame)
    length = 1 + max((number for intervals in counted.values() for number in intervals), default=-1)
    return {"began_s": began_s, "bytes": {sender: [of[i] for i in range(length)] for sender, of in counted.items()}}


if __name__ == "__main__":
    print(json.dumps(capture(sys.argv[1], float(sys.argv[2]))))
