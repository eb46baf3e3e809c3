"""The mark of each connection of a worker, by which its packets are queued; nothing overtakes where it changes."""
