"""Hostile input for everything that listens: made at random from a seed, sent to the real thing, which has to go on serving."""
