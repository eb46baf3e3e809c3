"""What each level learns from the other: the only package of the library that stands on both."""
