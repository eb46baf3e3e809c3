"""Warm starts: ranks that are forks of a process which has imported what their program imports."""
