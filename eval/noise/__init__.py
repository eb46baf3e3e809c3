"""The study of noisy losses: how soon a search has what it looks for, where each loss is of samples never seen before."""
