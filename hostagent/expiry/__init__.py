"""Queues do not outlive their lease: what an agent records, and the guard that removes them after it."""
