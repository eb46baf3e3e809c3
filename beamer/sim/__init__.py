"""Event-driven flow-level simulation of the same scenarios, calling the same decisions."""
