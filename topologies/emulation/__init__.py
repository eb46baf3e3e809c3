"""A scenario on real packets: Mininet network, controller and agents as processes, trainers, measurements."""
