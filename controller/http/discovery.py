"""What is served while a network is looked for: the agents' WebSocket, with the authorization that a controller has."""

from fastapi import Depends, FastAPI, WebSocket

from controller.agents.finder import AgentFinder
from controller.http.authorization import AGENT, Authorization


def discovery_app(finder: AgentFinder, authorization: Authorization) -> FastAPI:
    """Return the application that lets agents in, those that are authorized, and serves nothing else."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, dependencies=[Depends(authorization)])

    @app.websocket(AGENT)
    async def agent(websocket: WebSocket, name: str) -> None:
        await finder.serve(name, websocket)

    return app
