"""Trials of the constants of `beamer`, on seeds that the study of network policies does not use."""
