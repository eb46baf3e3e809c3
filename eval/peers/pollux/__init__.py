"""The simulator of Pollux' artifact [Qiao et al. 2021]: petuum/adaptdl, branch osdi21-artifact, folder `simulator`."""
