"""Authentication: certificates of the controller, agents and switches; tokens of those who use the HTTP API."""
