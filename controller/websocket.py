"""What the HTTP server, the application and the hub of agents agree on about an agent's WebSocket: keys, codes, pings.

None of the three needs to import another one for it.
"""

AGENT_PING_S = 5.0  # A dead agent is noticed after so long, and given up after as long again.

UNCOUNT = "beamer.uncount"
"""The key in a WebSocket's `state` of what takes its connection out of the server's count."""
PEER_CERTIFICATE = "beamer.certificate"
"""The key in a WebSocket's `state` of what returns the certificate that its peer has shown, None without TLS."""

REFUSED = 1008  # policy violation: what the agent sent cannot be accepted (RFC 6455, 7.4.1)
FAILED = 1011  # an unexpected condition: a defect of the controller
UNAVAILABLE = 1013  # The peer has to try again later.
NOT_LEADING = 4001  # The peer has to try the next controller: this one follows another one.

_REASON_BYTES = 123  # So many bytes of a reason fit into a close frame (RFC 6455, 5.5).


def close_reason(reason: str) -> str:
    """Return as much of a reason as fits into a close frame."""
    return reason.encode(errors="replace")[:_REASON_BYTES].decode(errors="ignore")
