"""Generated workloads: searches on a cluster, drawn from a seed and written as scenario files."""
