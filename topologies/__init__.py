"""Shapes of network that scenarios name; `emulation` realises any of them in Mininet."""
