"""Finds a network: switches and agents that connect, where cables lead, and which hosts answer. It leads nothing."""
