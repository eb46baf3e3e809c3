"""The studies of GPU policies, and the data and jobs that they run on."""
