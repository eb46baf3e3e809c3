"""The connection to the controllers: which of them leads, mutual TLS, reports within its limits."""
