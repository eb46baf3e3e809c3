"""The HTTP API: every write is a PUT by name that becomes one event, every response is read from the runtime.

All routes run on the event loop, which is what makes the runtime single-threaded.
"""

import json
from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request, Response, WebSocket
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST

from beamer.errors import ConflictError, InputError, NotFoundError, PlatformError
from beamer.studies.events import (
    IterationDone,
    JobEnded,
    JobRegistered,
    StageRegistered,
    StageSealed,
    StudyRegistered,
    WorkerAttached,
)
from beamer.studies.model import job_key
from beamer.validation import finding_error
from controller import responses
from controller.bodies import AttachBody, EmptyBody, JobBody, StatusBody, StudyBody
from controller.metrics import exposition
from controller.runtime import Runtime

STUDY = "/v1/studies/{study}"
STAGE = STUDY + "/stages/{stage}"
JOB = STAGE + "/jobs/{job}"

JsonObject = dict[str, Any]


def create_app(runtime: Runtime) -> FastAPI:
    """Return the application that serves `runtime`, which the caller starts and stops."""
    app = FastAPI(title="Beamer", summary="Stages in, classes out", docs_url="/docs", redoc_url=None)
    app.add_exception_handler(InputError, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_body)
    app.add_exception_handler(PlatformError, _unavailable)
    _add_writes(app, runtime)
    _add_reads(app, runtime)

    @app.websocket("/v1/agents/{name}")
    async def agent(websocket: WebSocket, name: str) -> None:
        await runtime.agents.serve(name, websocket)

    return app


def _add_writes(app: FastAPI, runtime: Runtime) -> None:
    clock: Callable[[], float] = runtime.clock

    @app.put(STUDY)
    async def register_study(study: str, body: StudyBody) -> JsonObject:
        rungs = tuple(rung.rung() for rung in body.rungs)
        return {"changed": runtime.record(StudyRegistered(clock(), study, body.weight, rungs))}

    @app.put(STAGE)
    async def register_stage(study: str, stage: str, body: EmptyBody | None = None) -> JsonObject:
        return {"changed": runtime.record(StageRegistered(clock(), study, stage))}

    @app.put(STAGE + "/seal")
    async def seal_stage(study: str, stage: str, body: EmptyBody | None = None) -> JsonObject:
        return {"changed": runtime.record(StageSealed(clock(), study, stage))}

    @app.put(JOB)
    async def register_job(study: str, stage: str, job: str, body: JobBody) -> JsonObject:
        return {"changed": runtime.record(JobRegistered(clock(), study, stage, body.spec(job)))}

    @app.put(JOB + "/workers/{rank}")
    async def attach_worker(study: str, stage: str, job: str, rank: int, body: AttachBody) -> JsonObject:
        return {"changed": runtime.record(WorkerAttached(clock(), job_key(study, stage, job), rank, body.pid))}

    @app.put(JOB + "/progress/{iteration}")
    async def report_progress(study: str, stage: str, job: str, iteration: int) -> JsonObject:
        return {"changed": runtime.record(IterationDone(clock(), job_key(study, stage, job), iteration))}

    @app.put(JOB + "/status")
    async def end_job(study: str, stage: str, job: str, body: StatusBody) -> JsonObject:
        return {"changed": runtime.record(JobEnded(clock(), job_key(study, stage, job), body.status))}


def _add_reads(app: FastAPI, runtime: Runtime) -> None:
    @app.get("/v1/studies")
    async def studies() -> JsonObject:
        return responses.studies_response(runtime)

    @app.get(STAGE)
    async def stage(study: str, stage: str) -> JsonObject:
        return responses.stage_response(runtime, study, stage)

    @app.get("/v1/plan")
    async def plan() -> JsonObject:
        return responses.plan_response(runtime)

    @app.get("/v1/latencies")
    async def latencies() -> JsonObject:
        return responses.latencies_response(runtime)

    @app.get("/v1/counters")
    async def counters() -> JsonObject:
        return responses.counters_response(runtime, await runtime.pair_counts())

    @app.get("/v1/health")
    async def health() -> JsonObject:
        return responses.health_response(runtime)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(exposition(runtime), media_type=CONTENT_TYPE_LATEST)


async def _refuse(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, InputError)
    status = 404 if isinstance(error, NotFoundError) else 409 if isinstance(error, ConflictError) else 422
    content = {"field": error.field, "value": _plain(error.value), "expected": error.expected, "message": str(error)}
    return JSONResponse({"error": content}, status)


async def _refuse_body(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    # A misspelt key explains a missing one better than the reverse.
    finding = min(error.errors(), key=lambda f: f["type"] != "extra_forbidden")
    location = finding["loc"][1:] or finding["loc"]  # without "body" or "path", which the field's name implies
    body = request.scope["route"].body_field
    model = body.field_info.annotation if body else None
    return await _refuse(request, finding_error({**finding, "loc": location}, model))


async def _unavailable(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, PlatformError)
    content = {"field": None, "value": None, "expected": error.remedy, "message": str(error)}
    return JSONResponse({"error": content}, 503)


def _plain(value: object) -> object:
    """Return `value`, or its text where JSON has no form for it."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return repr(value)
    return value
