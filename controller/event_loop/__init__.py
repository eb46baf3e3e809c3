"""How one event loop serves all: timers that rest, and long work in slices."""
