"""How one event loop serves all: timers that rest, long work in slices, no pauses of the garbage collector."""
