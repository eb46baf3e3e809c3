"""The HTTP API and the server that carries it, with bounds on what a peer may hold of either."""
