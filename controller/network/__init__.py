"""The network level, live: events become decisions, targets for switches and agents, and their acknowledgements."""
