"""The host agent: owns the queues of its interfaces; the only place that imports pyroute2."""
