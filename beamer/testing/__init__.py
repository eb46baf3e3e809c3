"""Conformance suites for policies and engines of others, and an example program; the suites need hypothesis."""
