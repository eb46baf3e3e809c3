"""Searches of real processes with taken ports, killed ranks, and programs that hang, lie and crash: `python -m eval engines`."""
