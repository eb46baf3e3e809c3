"""The hot loops, compiled by numba: array code without policy, each with a plain counterpart that tests compare it with.

This folder is the only place that imports numba. Compiled code is kept on disk, so that only a first run waits for it.
"""
