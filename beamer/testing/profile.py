"""How the suites run hypothesis: no deadline, since machines differ, and the same examples every time."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

PROFILE = settings(deadline=None, max_examples=30, derandomize=True, database=None)
POLICIES = settings(PROFILE, max_examples=15)  # These settings are for tests that run for each of many policies.


def of_drawn(*drawn: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[[Any], None]]:
    """Return a decorator. It turns a function of a policy and drawn values into a check of the policy alone."""

    def decorated(check: Callable[..., None]) -> Callable[[Any], None]:
        @wraps(check)
        def checked(policy: Any) -> None:
            def of_policy(values: tuple[Any, ...]) -> None:
                check(policy, *values)

            of_policy.__name__ = check.__name__  # Every check has examples of its own.
            POLICIES(given(st.tuples(*drawn))(of_policy))()

        return checked

    return decorated
