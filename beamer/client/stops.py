"""Exceptions by which a tuner or a trainer ends a trial that has not failed, told by name, without importing any."""

STOPS = frozenset(
    {
        ("optuna", "TrialPruned"),
        ("ray", "TaskCancelledError"),
        ("lightning", "SIGTERMException"),
        ("lightning", "_TunerExitException"),
        ("pytorch_lightning", "SIGTERMException"),
        ("pytorch_lightning", "_TunerExitException"),
    }
)
"""The package that a class comes from, and its name; subclasses count, too."""


def is_stop(error: BaseException) -> bool:
    """Say whether an exception stops a trial instead of failing it: one of `STOPS`, or an interruption such as Ctrl-C."""
    return is_planned(error) or not isinstance(error, Exception)


def is_planned(error: BaseException) -> bool:
    """Say whether an exception is one of `STOPS`, by which a process leaves a trial on purpose."""
    return any((cls.__module__.partition(".")[0], cls.__qualname__) in STOPS for cls in type(error).__mro__)
