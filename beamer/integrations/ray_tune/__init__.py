"""Ray Tune: one callback tells Beamer what a search runs. Needs the extra `ray`.

    from beamer.integrations.ray_tune import BeamerCallback

    tune.RunConfig(callbacks=[BeamerCallback()])

callback: what Tune calls. search: the search as the client is told of it. schedules: what Tune's schedulers know of rungs.
controller: how a callback comes to the controller of its search. location: where a trial's process is.
"""

from beamer.integrations.ray_tune.callback import BeamerCallback

__all__ = ["BeamerCallback"]
