"""Ray Tune: one callback tells Beamer what a search runs. Needs the extra `ray`.

    from beamer.integrations.ray_tune import BeamerCallback

    tune.RunConfig(callbacks=[BeamerCallback()])

callback: what Tune calls. search: the search as the client is told of it. schedule: what that has to know of a scheduler.
schedules: how Tune's are read. controller: how a callback comes to the controller of its search. location: where a trial's
process is. values: what results and stop criteria say. `search`, `schedule` and `values` do not import Ray.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beamer.integrations.ray_tune.callback import BeamerCallback

__all__ = ["BeamerCallback"]


def __getattr__(name: str) -> Any:
    """Import the callback, and Ray with it, when it is asked for."""
    if name == "BeamerCallback":
        from beamer.integrations.ray_tune.callback import BeamerCallback

        return BeamerCallback
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
