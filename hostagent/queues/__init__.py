"""The queues of this host's ports: the HTB tree that a port should have, and the kernel's side of it."""
