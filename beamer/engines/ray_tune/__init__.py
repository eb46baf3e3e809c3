"""GPU policies on Ray Tune: `scheduler.BeamerScheduler` is what a Tuner is given. Needs the extra `ray`.

Only `scheduler` and `cluster` import Ray; what decides about rungs does without.
"""
