"""The SDN controller: the only place that imports os-ken and FastAPI."""
