"""Experiments, their configurations and their reports."""
