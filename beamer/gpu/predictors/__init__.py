"""Predictors of convergence, speed and goodput."""
