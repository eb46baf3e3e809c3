"""What the studies of GPU policies run on, and the studies."""
