"""The workers of this host: how they attach, and which processes are theirs."""
