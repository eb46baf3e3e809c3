"""Predictors of convergence, speed and goodput: each answers with an estimate and how far it may be off."""
