"""The HTTP API: every write is a PUT by name that becomes one event, every response is read from the runtime.

All routes run on the event loop, which is what makes the runtime single-threaded.
"""

import asyncio
import time
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Path, Request, Response, WebSocket
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from beamer.errors import InputError, NotFoundError, PlatformError
from beamer.gpu.protocol import EngineRefused
from beamer.protocol_version import HEADER
from beamer.studies.events import (
    AttemptEnded,
    AttemptStarted,
    Event,
    MemberJoined,
    MemberLeft,
    Progressed,
    StageRegistered,
    StageSealed,
    StudyEnded,
    StudyRegistered,
    TargetDropped,
    TargetSet,
    TrialEnded,
    TrialRegistered,
    WorkerAttached,
    WorkerDetached,
)
from beamer.studies.model import MAX_RANK, EndReason, TrialStatus, trial_key
from controller.admission import check_admission
from controller.event_loop.time_slices import TimeSlices
from controller.http import responses
from controller.http.authorization import AGENT, HEALTH, STUDIES, Authorization, DeniedError
from controller.http.bodies import (
    AttachBody,
    AttemptBody,
    AttemptEndBody,
    DetachBody,
    DropBody,
    EmptyBody,
    MemberBody,
    ProgressBody,
    StatusBody,
    StudyBody,
    TargetBody,
    TrialBody,
)
from controller.http.documentation import OPENAPI, add_documentation
from controller.http.errors import DOCUMENTED, AsciiResponse, DocumentedAPI, refusal, refused_input
from controller.http.host_names import HostNames
from controller.http.metrics import exposition
from controller.http.names_in_paths import NamesInPaths
from controller.http.paced_answers import answer
from controller.http.plain_route import PlainRoute
from controller.http.responses import ListedTrials
from controller.http.runs import check_goes_on, check_run, study_event
from controller.http.warnings import never_ran, replaced_run, without_attempt
from controller.identity.credentials import NO_CREDENTIALS, Credentials
from controller.identity.tokens import Claims
from controller.runtime import Runtime
from controller.websocket import REFUSED, close_reason

STUDY = STUDIES + "/{study:name}"
STAGE = STUDY + "/stages/{stage:name}"
TRIAL = STUDY + "/trials/{trial:name}"
ATTEMPT = TRIAL + "/attempts/{attempt:name}"
WORKER = TRIAL + "/workers/{rank}"
MEMBER = STUDY + "/members/{member:name}"

_CHANGED, _UNCHANGED = b'{"changed":true}', b'{"changed":false}'

JsonObject = dict[str, Any]
Run = str | None
"""The run of the study that is meant, from the query `?run=`; None: the present one."""
Listed = ListedTrials | None
Rank = Annotated[int, Path(ge=0, le=MAX_RANK)]


def create_app(runtime: Runtime, credentials: Credentials = NO_CREDENTIALS) -> FastAPI:
    """Return the application that serves `runtime`, which the caller starts and stops, to whom `credentials` let in."""
    certified = credentials.http is not None
    # Tokens expire by the machine's clock: the runtime's goes on from the journal's last event, whatever clock that had.
    authorization = Depends(Authorization(credentials.tokens, certified, time.time))
    app = DocumentedAPI(
        title="Beamer",
        summary="Trials and stages in, classes out",
        description=f"Every answer says in its header `{HEADER}` which version of the protocol the controller speaks.",
        docs_url=None,
        redoc_url=None,
        openapi_url=OPENAPI,
        redirect_slashes=False,  # Redirects would go to whatever a request's Host says, before anybody has asked for a token.
        dependencies=[authorization],
        responses=DOCUMENTED,
    )
    app.router.route_class = PlainRoute
    app.add_middleware(NamesInPaths)
    app.add_exception_handler(DeniedError, _deny)  # type: ignore[arg-type]  # It handles requests and WebSockets.

    async def refuse(request: Request, error: Exception) -> Response:
        """Refuse an input, unless another controller leads by now, which may know more."""
        assert isinstance(error, InputError)
        try:
            await runtime.confirm()
        except PlatformError as unavailable:
            return await _unavailable(request, unavailable)
        return refused_input(error)

    app.add_exception_handler(InputError, refuse)
    app.add_exception_handler(PlatformError, _unavailable)
    app.add_exception_handler(HTTPException, _unserved)
    add_documentation(app)
    _add_trials(app, runtime)  # The most frequent paths come first, as paths are tried in this order.
    _add_studies(app, runtime)
    _add_reads(app, runtime, authorization)

    @app.websocket(AGENT)
    async def agent(websocket: WebSocket, name: str) -> None:
        await runtime.agents.serve(name, websocket)

    @app.websocket(STUDY + "/engine")
    async def engine(websocket: WebSocket, study: str) -> None:
        await serve_engine(runtime, study, websocket)

    return app


async def _record(runtime: Runtime, study: str, run: Run, event: Event, warning: str | None = None) -> Response:
    """Take in an event and answer when it is durable, and with it whatever it repeats. warning: said in the answer."""
    check_run(runtime.tracker, study, run)
    if runtime.gpu is not None:
        runtime.gpu.check_not_of_engine(study, event)
    check_admission(event, runtime.tracker, runtime.limits)
    changed = runtime.record(event)
    try:
        await runtime.written()
    except asyncio.CancelledError as error:
        raise PlatformError("the controller is being stopped", "send it again") from error
    if warning is not None:
        return AsciiResponse({"changed": changed, "warning": warning})
    return Response(_CHANGED if changed else _UNCHANGED, media_type="application/json")


def _add_studies(app: FastAPI, runtime: Runtime) -> None:
    clock = runtime.clock

    @app.put(STUDY)
    async def register_study(study: str, body: StudyBody | None = None, run: Run = None) -> Response:
        """Register a study, or say again what it declares; another run of it ends the one before."""
        body = body or StudyBody()
        named = {"weight": body.weight, "barriers": body.barriers}
        given: JsonObject = {name: value for name, value in named.items() if value is not None}
        if body.rungs is not None:
            given["rungs"] = tuple(rung.rung() for rung in body.rungs)
        if body.run is not None and run not in (None, body.run):
            raise InputError("run", run, f"{body.run}, as in the body, or none")
        registered = study_event(runtime.tracker, StudyRegistered(clock(), study), body.run or run, given)
        return await _record(runtime, study, None, registered, replaced_run(runtime.tracker, registered))

    @app.put(MEMBER)
    async def join_study(study: str, member: str, body: MemberBody | None = None, run: Run = None) -> Response:
        """Say that a process takes part in a study, or still does: without renewals in time it is taken for gone."""
        body = body or MemberBody()
        return await _record(runtime, study, run, MemberJoined(clock(), study, member, body.lease_s, body.host, body.pid))

    @app.put(MEMBER + "/leave")
    async def leave_study(study: str, member: str, body: EmptyBody | None = None, run: Run = None) -> Response:
        """End what a process began in a study, which ends with the last of them."""
        return await _record(runtime, study, run, MemberLeft(clock(), study, member))

    @app.put(STUDY + "/end")
    async def end_study(study: str, body: EmptyBody | None = None, run: Run = None) -> Response:
        """End a study: its trials that have not ended end with it."""
        return await _record(runtime, study, run, StudyEnded(clock(), study))

    @app.put(STAGE)
    async def register_stage(study: str, stage: str, body: EmptyBody | None = None, run: Run = None) -> Response:
        """Open a stage, whose completion time counts from here."""
        return await _record(runtime, study, run, StageRegistered(clock(), study, stage))

    @app.put(STAGE + "/seal")
    async def seal_stage(study: str, stage: str, body: EmptyBody | None = None, run: Run = None) -> Response:
        """Say that no further trial joins a stage."""
        return await _record(runtime, study, run, StageSealed(clock(), study, stage))


def _add_trials(app: FastAPI, runtime: Runtime) -> None:
    clock, hosts = runtime.clock, HostNames(runtime.fabric)

    @app.put(TRIAL + "/progress")
    async def report_progress(study: str, trial: str, body: ProgressBody, run: Run = None) -> Response:
        """Report how far a trial is, and its loss."""
        event = Progressed(clock(), trial_key(study, trial), body.step, body.loss)
        return await _record(runtime, study, run, event, without_attempt(runtime.tracker, event.trial))

    @app.put(TRIAL)
    async def register_trial(study: str, trial: str, body: TrialBody | None = None, run: Run = None) -> Response:
        """Register a trial."""
        body = body or TrialBody()
        return await _record(runtime, study, run, TrialRegistered(clock(), study, trial, body.budget, body.member))

    @app.put(TRIAL + "/target")
    async def set_target(study: str, trial: str, body: TargetBody, run: Run = None) -> Response:
        """Say which step of a trial is waited for: by a stage, or as its own milestone."""
        return await _record(runtime, study, run, TargetSet(clock(), trial_key(study, trial), body.step, body.stage))

    @app.put(TRIAL + "/target/drop")
    async def drop_target(study: str, trial: str, body: DropBody | None = None, run: Run = None) -> Response:
        """Say that a step is not waited for any more."""
        stage = body.stage if body else None
        return await _record(runtime, study, run, TargetDropped(clock(), trial_key(study, trial), stage))

    @app.put(ATTEMPT)
    async def start_attempt(study: str, trial: str, attempt: str, body: AttemptBody, run: Run = None) -> Response:
        """Say where a trial runs from now on, and what it sends."""
        event = AttemptStarted(clock(), trial_key(study, trial), attempt, body.placement(hosts), body.profile(), step=body.step)
        return await _record(runtime, study, run, event)

    @app.put(ATTEMPT + "/end")
    async def end_attempt(study: str, trial: str, attempt: str, body: AttemptEndBody, run: Run = None) -> Response:
        """End an attempt of a trial, which may get another one."""
        return await _record(
            runtime, study, run, AttemptEnded(clock(), trial_key(study, trial), attempt, EndReason(body.reason))
        )

    @app.put(TRIAL + "/pause")
    async def pause(study: str, trial: str, body: EmptyBody | None = None, run: Run = None) -> Response:
        """End the present attempt of a trial, which goes on later."""
        check_run(runtime.tracker, study, run)
        present = runtime.tracker.trial(trial_key(study, trial)).attempt
        if present is None:
            raise NotFoundError("attempt", trial_key(study, trial), "a trial that has run")
        return await _record(runtime, study, run, AttemptEnded(clock(), trial_key(study, trial), present.name))

    @app.put(WORKER)
    async def attach(study: str, trial: str, rank: Rank, body: AttachBody, run: Run = None) -> Response:
        """Say which process a worker is; its host's agent finds its connections."""
        check_goes_on(runtime.tracker, study, run)
        return await _record(runtime, study, run, WorkerAttached(clock(), trial_key(study, trial), rank, body.process()))

    @app.put(WORKER + "/detach")
    async def detach(study: str, trial: str, rank: Rank, body: DetachBody | None = None, run: Run = None) -> Response:
        """Say that a worker is gone."""
        start = body.start if body else 0
        return await _record(runtime, study, run, WorkerDetached(clock(), trial_key(study, trial), rank, start))

    @app.put(TRIAL + "/status")
    async def end_trial(study: str, trial: str, body: StatusBody, run: Run = None) -> Response:
        """End a trial for good: finished, killed or failed."""
        event = TrialEnded(clock(), trial_key(study, trial), TrialStatus(body.status))
        return await _record(runtime, study, run, event, never_ran(runtime.tracker, event))


def _add_reads(app: FastAPI, runtime: Runtime, authorization: Any) -> None:
    turns = TimeSlices()

    @app.get(STUDIES)
    async def studies(claims: Claims = authorization, trials: Listed = None) -> Response:
        """Return every study that the token may read.

        trials: which of their trials are listed: all unless it says otherwise. `trial_counts` counts all of them by status.
        """
        found = responses.studies_responses(runtime, claims.covers, trials or ListedTrials.ALL)
        return await answer({"studies": found}, turns)

    @app.get(STUDY)
    async def study(study: str, run: Run = None, trials: Listed = None) -> Response:
        """Return a study with its stages and trials. trials: as of all studies."""
        return await answer(responses.study_response(runtime, study, run, trials or ListedTrials.ALL), turns)

    @app.get(STUDY + "/hosts")
    async def hosts(study: str) -> Response:
        """Return where the trials of a study run."""
        return AsciiResponse(responses.hosts_response(runtime))

    @app.get(STAGE)
    async def stage(study: str, stage: str, run: Run = None) -> Response:
        """Return a stage: who is in it, and whether it has ended."""
        return await answer(responses.stage_response(runtime, study, run, stage), turns)

    @app.get(TRIAL)
    async def trial(study: str, trial: str, run: Run = None) -> Response:
        """Return a trial with its attempts, `estimates` of its traffic and where they come from, and `decision`.

        `decision` says why a running trial has its class, from what the last decision was made of; it is null of a trial that
        this was not about. `place`: of the trial among all `jobs` in the order of `policy`, from 1. `tier`, `tiers`,
        `tier_jobs`: the group that the policy serves together, and how many jobs are in it. `stage`: that waits for the trial,
        `stage_jobs` how many of its trials run, `slowest` the one that would take longest alone. `remaining_steps`, `step_s`,
        `left_s`: what the trial has left, and what it takes with the fabric to itself. `bottleneck`: the link from `src` to
        `dst` that it needs longest, for `left_bytes` in `left_s`; `jobs_ahead` are the jobs there whose class goes first, for
        `ahead_s`, and `jobs_beside` the others of its class.
        """
        return await answer(responses.trial_response(runtime, study, run, trial), turns)

    @app.get("/v1/plan")
    async def plan() -> Response:
        """Return the plan in force: the class of each job, its cap, and where the plan is installed.

        `connected` names the switches and agents that are. `owned_by_agents` has the hosts and switches whose queues each agent
        is to make.
        """
        return await answer(responses.plan_response(runtime), turns)

    @app.get("/v1/gpus")
    async def gpus() -> Response:
        """Return which trials have which GPUs, and who waits.

        `held_bytes` has the GPU memory of trials that hold any, suspended ones too, as far as their engines know it.
        """
        return AsciiResponse(responses.gpus_response(runtime))

    @app.get("/v1/latencies")
    async def latencies() -> Response:
        """Return how long plans took from their event to being installed everywhere."""
        return AsciiResponse(responses.latencies_response(runtime))

    @app.get("/v1/counters")
    async def counters() -> Response:
        """Return the bytes that queues and pairs of hosts have counted."""
        return await answer(responses.counters_response(runtime, await runtime.pair_counts()), turns)

    @app.get(HEALTH)
    async def health() -> Response:
        """Return whether this controller leads, and what is connected."""
        return AsciiResponse(responses.health_response(runtime))

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return the metrics in Prometheus' text format."""
        return Response(exposition(runtime), media_type=CONTENT_TYPE_LATEST)


async def serve_engine(runtime: Runtime, study: str, websocket: WebSocket) -> None:
    """Serve the engine of a study, where a GPU policy decides here."""
    if runtime.gpu is not None:
        await runtime.gpu.engines.serve(study, websocket)
        return
    await websocket.accept()
    reason = "this controller decides on no GPUs: start it with --gpu-policy"
    await websocket.send_text(EngineRefused(reason=reason).model_dump_json())
    await websocket.close(REFUSED, close_reason(reason))


async def _deny(connection: HTTPConnection, error: Exception) -> Response | None:
    assert isinstance(error, DeniedError)
    if isinstance(connection, WebSocket):
        await connection.accept()  # The agent can be told why only over an accepted connection.
        await connection.close(REFUSED, close_reason(str(error)))
        return None
    refused = refusal(error.status, str(error), error.expected)
    if error.status == HTTPStatus.UNAUTHORIZED:
        refused.headers["www-authenticate"] = "Bearer"
    return refused


async def _unavailable(_request: Request, error: Exception) -> Response:
    assert isinstance(error, PlatformError)
    return refusal(503, str(error), error.remedy)


async def _unserved(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    refused = refusal(error.status_code, error.detail, "a path and a method of this API")
    refused.headers.update(error.headers or {})
    return refused
