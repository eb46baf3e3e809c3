"""Timelines in the Trace Event Format, for Perfetto (https://ui.perfetto.dev) and chrome://tracing.

A process is a study under a policy, the policies one after another; its first thread shows the stages, each other thread a
trial. A trace of coflows is one process per policy; its threads are tracks, of which a coflow takes the first that is free.
[https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU]
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

from beamer.sim.joint import JointRun
from beamer.sim.replay import Replay
from beamer.sim.results import RunResult, StageResult
from beamer.studies.model import split_key

TraceEvent = dict[str, Any]

STAGES = 0  # thread id


class _Job(NamedTuple):
    study: str
    trial: str
    name: str
    start_s: float
    end_s: float


def run_events(runs: Sequence[RunResult]) -> Iterator[TraceEvent]:
    """Yield the stages and jobs of runs as complete events, processes and threads named and sorted."""
    return _run_events((run.policy, run.stages, list(_jobs(run))) for run in runs)


def joint_events(runs: Sequence[JointRun]) -> Iterator[TraceEvent]:
    """Yield stages, and trials from their first start to their end, of runs under a policy of each level; as `run_events`."""
    return _run_events((run.timeline.policy, run.stages, list(_trials(run))) for run in runs)


def _jobs(run: RunResult) -> Iterator[_Job]:
    for job in run.jobs:
        study, rung, trial = job.names
        yield _Job(study, trial, f"{rung}/{trial}", job.start_s, job.end_s)


def _trials(run: JointRun) -> Iterator[_Job]:
    for job in run.jobs:
        study, trial = split_key(job.key)
        if job.started_s is not None:
            yield _Job(study, trial, trial, job.started_s, run.end_s if job.ended_s is None else job.ended_s)


def _run_events(runs: Iterable[tuple[str, Sequence[StageResult], Sequence[_Job]]]) -> Iterator[TraceEvent]:
    process = 0
    for title, stages, jobs in runs:
        for study in dict.fromkeys(stage.study for stage in stages):
            process += 1
            yield from _process(process, f"{title}: {study}")
            yield from _thread(process, STAGES, "stages")
            for stage in stages:
                if stage.study == study:
                    yield _complete(process, STAGES, stage.stage, "stage", stage.start_s, stage.end_s)
            threads: dict[str, int] = {}
            for job in jobs:
                if job.study != study:
                    continue
                if job.trial not in threads:
                    threads[job.trial] = len(threads) + 1
                    yield from _thread(process, threads[job.trial], job.trial)
                yield _complete(process, threads[job.trial], job.name, "job", job.start_s, job.end_s)


def replay_events(replays: Sequence[Replay]) -> Iterator[TraceEvent]:
    """Yield the coflows of replays as complete events, processes and threads named and sorted."""
    for process, one in enumerate(replays, 1):
        yield from _process(process, f"{one.policy}, {one.allocator}")
        release, completion = one.release_s.tolist(), one.completion_s.tolist()
        busy: list[tuple[float, int]] = []
        free: list[int] = []
        tracks = 0
        for i in sorted(range(len(release)), key=release.__getitem__):
            while busy and busy[0][0] <= release[i]:
                heappush(free, heappop(busy)[1])
            if not free:
                tracks += 1
                heappush(free, tracks)
                yield from _thread(process, tracks, f"track {tracks}")
            track = heappop(free)
            heappush(busy, (completion[i], track))
            yield _complete(process, track, one.id[i], "coflow", release[i], completion[i])


def write_events(events: Iterable[TraceEvent], path: Path) -> None:
    """Write events as a file that the viewers open."""
    path.write_text(json.dumps({"traceEvents": list(events), "displayTimeUnit": "ms"}), "utf-8")


def _complete(process: int, thread: int, name: str, category: str, start_s: float, end_s: float) -> TraceEvent:
    microseconds = {"ts": start_s * 1e6, "dur": (end_s - start_s) * 1e6}
    return {"ph": "X", "pid": process, "tid": thread, "name": name, "cat": category, **microseconds}


def _process(process: int, name: str) -> Iterator[TraceEvent]:
    yield _about("process_name", process, 0, name=name)
    yield _about("process_sort_index", process, 0, sort_index=process)


def _thread(process: int, thread: int, name: str) -> Iterator[TraceEvent]:
    yield _about("thread_name", process, thread, name=name)
    yield _about("thread_sort_index", process, thread, sort_index=thread)


def _about(what: str, process: int, thread: int, **arguments: Any) -> TraceEvent:
    return {"ph": "M", "pid": process, "tid": thread, "name": what, "args": arguments}
