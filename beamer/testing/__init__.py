"""Fakes and conformance suites that users may import; needs hypothesis."""
