"""The hot loops, compiled by numba: array code without policy, each with a plain counterpart to test it against.

Every module states its algorithm's phases, invariants and complexity.

This folder is the only place that imports numba. Compiled code is cached on disk.
"""
