"""HTTP requests to the controller; a module of its own, as httpx takes longer to import than the rest of the client."""

from contextlib import closing

import httpx

from beamer.errors import InputError


class Transport:
    """Send requests to the controller at `url`, each aborted after `timeout_s` seconds. Raises `InputError` for a bad URL."""

    def __init__(self, url: str, timeout_s: float) -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise InputError("url", url, f"the controller's URL such as 'http://127.0.0.1:8265' ({error})") from error
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise InputError("url", url, "the controller's URL such as 'http://127.0.0.1:8265'")
        self._url = url.rstrip("/")
        self._timeout = httpx.Timeout(timeout_s).as_dict()
        # Not a client, which would log every request into the trainer's log. The environment's proxies are for the outside.
        # Certificates, slow to load, matter to https alone.
        self._http = httpx.HTTPTransport(trust_env=False, verify=parsed.scheme == "https")

    def request(self, method: str, path: str, content: bytes | None = None) -> httpx.Response:
        """Return the response to a request, read whole.

        Raises `ConnectionError` if none arrives, `ValueError` for a path that cannot be part of a URL.
        """
        try:
            headers = {"Content-Type": "application/json"}
            extensions = {"timeout": self._timeout}
            request = httpx.Request(method, self._url + path, headers=headers, content=content, extensions=extensions)
            with closing(self._http.handle_request(request)) as response:
                response.read()
        except httpx.InvalidURL as error:
            raise ValueError(str(error)) from error
        except httpx.RequestError as error:
            raise ConnectionError(str(error) or type(error).__name__) from error
        return response

    def close(self) -> None:
        """Close the connections."""
        self._http.close()
