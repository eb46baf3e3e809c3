"""The library: stage-aware coflow scheduling as data and pure functions; imports nothing from the other top-level folders."""
