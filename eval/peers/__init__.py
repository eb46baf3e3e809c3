"""Our policies inside other projects' simulators, beside the policies of those projects, on their workloads."""
