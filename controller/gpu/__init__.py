"""The GPU level in the controller: searches' engines, and the policy that decides on their trials' GPUs."""
