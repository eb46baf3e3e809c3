"""The study of both levels together: searches that share GPUs and network, under pairs of policies."""
