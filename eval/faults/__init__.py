"""Faults that happen to a running site, each tried so many times against real processes on loopback."""
