"""NVIDIA's GPUs: which there are, and what processes hold on them. Its packages are imported here alone, when they are used."""
