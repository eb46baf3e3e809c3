"""The study of searches without barriers: how soon a search has what it looks for, under network policies."""
