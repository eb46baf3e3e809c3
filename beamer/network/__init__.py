"""The network level: which job's coflows go first, and what that means for links, queues and packets."""
