"""Queues do not outlive their deadline: what an agent records, and the guard that removes them after it."""
