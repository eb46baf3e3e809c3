"""The supervisor: a process per job and node that starts, freezes and ends its ranks, and outlives the engine.

Only the standard library is imported here, and wherever this package imports from, save `regex` for a job that has a progress
pattern: a supervisor is started for every job.
"""
