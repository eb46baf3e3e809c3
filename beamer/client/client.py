"""The API for trainers and tuners: it tells Beamer what runs, and never blocks them or makes them fail.

    client = Client()
    with client.study("resnet", rungs=[Rung("rung0", 4, 20), Rung("rung1", 2, 60)]) as study:  # the last to leave ends it
        trial = study.trial("trial1")
        with study.stage("rung0") as stage:  # leaving it seals the stage
            stage.add(trial, step=20)
            trial.start(workers=["h1", "h2"], sync_bytes=100_000_000)
        stage.wait(timeout_s=3600)

    trial = client.trial("resnet", "trial1")  # in each worker process
    with trial.attach(rank=0):  # leaving it detaches the worker
        for step in range(1, 21):
            ...
            trial.progress(step, loss)

Calls return at once; a background thread sends their requests. Without a controller one warning is logged, training continues,
and the requests are delivered when the controller is back. What the controller refuses is logged, too, never raised.
A process that ends by `os._exit`, as `multiprocessing`'s children do, calls `close` first to have its last requests sent.
"""

import logging
import os
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from beamer.client.credentials import controller_access
from beamer.client.handles import StageHandle, StudyHandle, TrialHandle
from beamer.client.membership import end_memberships
from beamer.client.outbox import EXIT_PATIENCE_S, Outbox
from beamer.client.request import Address, name_of
from beamer.client.urls import RUN_VARIABLE, URL, URL_VARIABLE
from beamer.errors import InputError
from beamer.studies.model import Rung

if TYPE_CHECKING:
    from beamer.client.controllers import Controllers

MAX_TIMEOUT_S = 3600.0  # An answer that takes more than an hour counts as none.
_PROCESS_RUN = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:8]}"

_log = logging.getLogger("beamer.client")

# Runs of this process that have ended are counted by study.
_ended: Counter[str] = Counter()


def _run_of_process(study: str) -> str:
    ended = _ended[str(study)]
    return f"{_PROCESS_RUN}.{ended}" if ended else _PROCESS_RUN


class Client(AbstractContextManager["Client"]):
    """Send to the controller at `url`; a request is aborted and tried again after `timeout_s` seconds.

    url: in full or as HOST:PORT, or several, separated by commas, of controllers of which one leads; None: `BEAMER_URL`, or one
    on this machine. token: sent as a bearer token; None: `BEAMER_TOKEN`, or what the file that `BEAMER_TOKEN_FILE` names holds,
    or none; beside one a controller that is not on this machine is at https, unless `BEAMER_INSECURE` is 1. ca: of a controller
    at https, the file of the certificates in PEM that sign its own; None: `BEAMER_CA`, or those that the system trusts. May be
    used by several threads, and after a fork by both processes. Raises `InputError` for an argument that is no URL, time-out,
    token or file; nothing else here raises. Where a variable of the environment is wrong, that is logged and nothing is sent.
    """

    def __init__(self, url: str | None = None, timeout_s: float = 0.5, token: str | None = None, ca: str | None = None) -> None:
        for field, value in (("url", url), ("token", token)):
            if value is not None and not isinstance(value, str):
                several = "; those of several controllers are separated by commas" if field == "url" else ""
                raise InputError(field, value, f"a text{several}")
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s <= MAX_TIMEOUT_S:
            raise InputError("timeout_s", timeout_s, f"seconds above 0, at most {MAX_TIMEOUT_S:g}")
        given = {"url": url, "token": token, "ca": ca}
        try:
            self._outbox = _outbox(url, timeout_s, token, ca)
        except InputError as error:
            if given.get(error.field) is not None:
                raise
            _log.error("the environment's setting of Beamer cannot be used, so that training goes on without it: %s", error)
            self._outbox = Outbox("", None)

    def study(
        self,
        name: str,
        run: str | None = None,
        weight: float | None = None,
        rungs: Sequence[Rung] | None = None,
        barriers: bool | None = None,
        member: str | None = None,
    ) -> StudyHandle:
        """Register a run of a study, or join it: this process is one of its members until it leaves it.

        A run of another name is replaced: it ends, for its other members, too. run: None: what the environment's `BEAMER_RUN`
        names, for processes that take part in one search; or else one of this process's own, another one after it has ended, so
        that a script that is started again, or a search that is run again, begins anew. weight: of its stages against those
        of other studies (1). rungs: that it declares (none). barriers: whether they are stages, which wait for all of their
        trials (they are). member: the name of this process as a member, for one that may take the place of another of that name
        later, as one that is started again does; None: one of its own. What else is None stays as it is.
        """
        named = run or os.environ.get(RUN_VARIABLE)
        address = Address(name_of(name), named or _run_of_process(name))
        study = StudyHandle(self._outbox, address, lambda: None if named else _ended.update([str(name)]), member)
        study.declare(weight, rungs, barriers)
        study.join()
        return study

    def trial(self, study: str, trial: str, run: str | None = None) -> TrialHandle:
        """Return a trial that another process registers, for its workers to attach to and report on.

        run: of the study; None: what `BEAMER_RUN` names, or else the present one.
        """
        named = run or os.environ.get(RUN_VARIABLE) or None
        return TrialHandle(self._outbox, Address(name_of(study), named, trial=name_of(trial)))

    def wait_stage(self, study: str, stage: str, timeout_s: float, run: str | None = None) -> bool:
        """Wait until a stage is done, at most `timeout_s` seconds; return whether it is. For tuners: this one does block."""
        return StageHandle(self._outbox, Address(name_of(study), run, stage=name_of(stage))).wait(timeout_s)

    def flush(self, timeout_s: float) -> bool:
        """Wait until the controller has answered every request so far, at most `timeout_s` seconds; return whether it has."""
        return self._outbox.flush(timeout_s)

    def close(self, timeout_s: float = 1.0) -> None:
        """Flush, then end the background thread, within about twice `timeout_s` seconds; later requests are dropped."""
        end_memberships(self._outbox)
        self._outbox.close(timeout_s)

    def close_at_exit(self, patience_s: float = EXIT_PATIENCE_S) -> None:
        """Close as at the end of the process: a controller that is known to be away is not waited for."""
        self._outbox.close_at_exit(patience_s)

    def __repr__(self) -> str:
        return f"<Client {self._outbox.named}>"

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _outbox(url: str | None, timeout_s: float, token: str | None, ca: str | None) -> Outbox:
    """Return an outbox to a client's controllers. Raises `InputError`."""
    url = url or os.environ.get(URL_VARIABLE) or URL
    access = controller_access(url, os.environ, token, ca)

    def connect(before: "Controllers | None") -> "Controllers":
        # The import is here so that importing Beamer costs a trainer little.
        from beamer.client.controllers import Controllers
        from beamer.client.transport import Transport

        return Controllers(access.urls, lambda one, known: Transport(one, timeout_s, access.headers, access.ca, known), before)

    return Outbox(url, connect)
