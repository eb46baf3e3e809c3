"""GPU policies on Ray Tune: `scheduler.BeamerScheduler` is what a Tuner is given. Needs the extra `ray`.

scheduler: Tune's calls, translated. search: a search's events under the GPU scheduler. engine: what it asks of trials.
metrics, checked_results: what a result says, and which trials fail of theirs. settings: what is refused before the first trial.
trials, cluster: Tune's trials and Ray's nodes. `search`, `engine`, `metrics` and `settings` do not import Ray.
"""
