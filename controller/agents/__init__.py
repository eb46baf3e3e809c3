"""The host agents: their WebSockets, and what is logged of them."""
