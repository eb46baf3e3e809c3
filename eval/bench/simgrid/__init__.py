"""SimGrid 3.32 [https://simgrid.org] on the loads of our fluid simulator: whether both agree, and how fast each is.

Casanova et al. 2014 (J. Parallel and Distributed Computing 74(10)). What is compared is max-min fair sharing of links among
flows that start and end, which both solve; nothing of SimGrid is part of this project, and a driver of ours calls it.
"""
