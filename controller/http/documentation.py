"""The page of the HTTP API, `/docs`: Swagger UI from this machine, so that it works without any other site, and tells none.

FastAPI's own page loads its script and its style from a content delivery network, and begins with a script within the page.
Here both are those that the package `fastapi-offline` ships, and the page's policy lets a browser load and ask nothing but this
controller. Like `/openapi.json`, they are open to anybody.
"""

from functools import cache
from importlib.resources import files

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

PAGE = "/docs"
OPENAPI = "/openapi.json"
MAX_AGE_S = 3600  # Browsers ask again after this time: another version of Beamer may have brought another script.
STATIC = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
"""The files of Swagger UI, and what each is."""
START = "start.js"

# Addresses are relative to the page, which may be served below a path of a proxy's.
_HTML = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Beamer</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/{START}"></script>
</body>
</html>
"""
_START = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#swagger-ui",
  deepLinking: true,
  validatorUrl: null,
});
"""
_HEADERS = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",  # Swagger UI sets styles of elements.
            "img-src 'self' data:",  # Its style has its icons within it.
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def add_documentation(app: Starlette) -> None:
    """Serve the page and what it consists of; the application has its document at `OPENAPI`."""

    async def page(request: Request) -> Response:
        return Response(_HTML, media_type="text/html", headers=_HEADERS)

    async def start(request: Request) -> Response:
        return Response(_START, media_type="text/javascript", headers=_HEADERS)

    async def static(request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        headers = {**_HEADERS, "Cache-Control": f"max-age={MAX_AGE_S}"}
        return Response(_shipped(name), media_type=STATIC[name], headers=headers)

    app.add_route(PAGE, page, methods=["GET"], include_in_schema=False)
    app.add_route(f"{PAGE}/{START}", start, methods=["GET"], include_in_schema=False)
    for name in STATIC:
        app.add_route(f"{PAGE}/{name}", static, methods=["GET"], include_in_schema=False)


@cache
def _shipped(name: str) -> bytes:
    """Return a file of Swagger UI."""
    return files("fastapi_offline").joinpath("static", name).read_bytes()
