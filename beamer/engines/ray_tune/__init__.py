"""GPU policies on Ray Tune: `scheduler.BeamerScheduler` is what a Tuner is given. Needs the extra `ray`.

scheduler: Tune's calls, translated. search: a search's events under the GPU scheduler. engine: what it asks of trials.
trials, cluster: Tune's trials and Ray's nodes. local: a cluster on one machine. `search` and `engine` do not import Ray.
"""
