"""Searches of processes whose ports are taken, whose ranks are killed, whose programs lie: `python -m eval engines`."""
