"""The registration API for trainers and tuners: reports to Beamer what runs, and never blocks it or makes it fail.

    client = Client()
    with client.study("resnet", rungs=[Rung("rung0", 4, 20), Rung("rung1", 2, 40)]) as study:
        with study.stage("rung0") as stage:  # leaving the block seals the stage
            with stage.job("trial1", workers=["h1", "h2"], iterations=20, sync_bytes=100_000_000) as job:
                job.attach(rank=0)
                for iteration in range(20):
                    ...
                    job.progress(iteration + 1)

Calls return at once; a background thread sends their requests. Without a controller one warning is logged, training continues,
and the requests are delivered when the controller is back. What the controller refuses is logged, too, never raised.
A process that ends by `os._exit`, as `multiprocessing`'s children do, calls `close` first to have its last requests sent.
"""

import os
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from beamer.client.outbox import Outbox, PutRequest
from beamer.studies.model import JobStatus, Rung, StageStatus, Worker

URL = "http://127.0.0.1:8265"


class Client:
    """Send to the controller at `url`; a request is aborted and tried again after `timeout_s` seconds.

    May be used by several threads, and after a fork by both processes. Raises `InputError` for an invalid URL or time-out;
    nothing else here raises.
    """

    def __init__(self, url: str = URL, timeout_s: float = 0.5) -> None:
        self._outbox = Outbox(url, timeout_s)

    def study(self, name: str, weight: float = 1.0, rungs: Sequence[Rung] = ()) -> "StudyHandle":
        """Register a study. weight: of its stages against those of others. rungs: the stages it will run, where known."""
        self._outbox.put(PutRequest((name,), body={"weight": weight, "rungs": list(rungs)}))
        return StudyHandle(self._outbox, name)

    def job(self, study: str, stage: str, job: str) -> "JobHandle":
        """Return a job that another process registers, for its workers to attach to and report on."""
        return JobHandle(self._outbox, (study, stage, job))

    def wait_stage(self, study: str, stage: str, timeout_s: float) -> bool:
        """Wait until a stage is done, at most `timeout_s` seconds; return whether it is. For tuners: this one does block."""
        return self._outbox.poll((study, stage), lambda answer: bool(answer["status"] == StageStatus.DONE), timeout_s)

    def flush(self, timeout_s: float) -> bool:
        """Wait until the controller has answered every request so far, at most `timeout_s` seconds; return whether it has."""
        return self._outbox.flush(timeout_s)

    def close(self, timeout_s: float = 1.0) -> None:
        """Flush, then end the background thread, within about twice `timeout_s` seconds; later requests are dropped."""
        self._outbox.close(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class StudyHandle:
    """A registered study, whose stages are registered as they start; leaving its block sends nothing."""

    def __init__(self, outbox: Outbox, name: str) -> None:
        self._outbox = outbox
        self.name = name

    def stage(self, name: str) -> "StageHandle":
        """Register a stage: from now on its completion time counts."""
        self._outbox.put(PutRequest((self.name, name), body={}))
        return StageHandle(self._outbox, (self.name, name))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None


class StageHandle:
    """A registered stage; leaving its block seals it."""

    def __init__(self, outbox: Outbox, names: tuple[str, str]) -> None:
        self._outbox = outbox
        self._names = names

    def job(
        self,
        name: str,
        *,
        workers: Sequence[Worker | str],
        iterations: int,
        sync_bytes: int,
        collective: str = "ring",
        compute_s: float = 0.0,
        overlap: float = 0.0,
    ) -> "JobHandle":
        """Register a job, described as in `JobSpec`; a bare host is the worker whose rank is its position."""
        body: dict[str, Any] = {
            "workers": [Worker(rank, w) if isinstance(w, str) else w for rank, w in enumerate(workers)],
            "iterations": iterations,
            "sync_bytes": sync_bytes,
            "collective": collective,
            "compute_s": compute_s,
            "overlap": overlap,
        }
        names = (*self._names, name)
        self._outbox.put(PutRequest(names, body=body))
        return JobHandle(self._outbox, names)

    def seal(self) -> None:
        """Seal the stage: no further job joins, it ends with its last job."""
        self._outbox.put(PutRequest(self._names, "/seal"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.seal()


class JobHandle:
    """A job; leaving its block reports it finished, leaving it by an exception reports it killed."""

    def __init__(self, outbox: Outbox, names: tuple[str, str, str]) -> None:
        self._outbox = outbox
        self._names = names

    def attach(self, rank: int, pid: int | None = None) -> None:
        """Report that worker `rank` is process `pid` (default: this one) and its children, by which its traffic is found."""
        self._outbox.put(PutRequest(self._names, f"/workers/{rank}", {"pid": os.getpid() if pid is None else pid}))

    def progress(self, iteration: int) -> None:
        """Report the number of complete iterations."""
        self._outbox.put(PutRequest(self._names, f"/progress/{iteration}", progress=True))

    def finish(self) -> None:
        """Report the job finished; of several ends the first counts."""
        self._end(JobStatus.FINISHED)

    def kill(self) -> None:
        """Report the job stopped before its end; of several ends the first counts."""
        self._end(JobStatus.KILLED)

    def _end(self, status: JobStatus) -> None:
        self._outbox.put(PutRequest(self._names, "/status", {"status": status}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end(JobStatus.FINISHED if error is None else JobStatus.KILLED)
