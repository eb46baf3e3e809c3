"""The fluid model of the network: flows as rates that change at events, worked out by the kernels."""
