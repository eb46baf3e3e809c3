"""The GPU level: which of a search's training jobs run, on which GPUs, decided by policies on what the tracker knows."""
