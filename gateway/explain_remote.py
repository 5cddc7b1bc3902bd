"""Asks a running gateway's admin port what it would do with a request: `homing explain --gateway URL`."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

PATIENCE_SECONDS = 30.0


class RemoteExplainer:
    """Explains request bodies by a running gateway; safe in several threads, each request has its own connection.

    `url` is the admin port's, `http://HOST:PORT`, `token` what it asks for, if anything. ValueError for anything else.
    """

    def __init__(self, url: str, tenant: str | None = None, token: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is not the address of an admin port; it looks like http://127.0.0.1:9090")
        self._headers = {"content-type": "application/json"}
        if token:
            self._headers["authorization"] = f"Bearer {token}"
        self._connection = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._host, self._port = parts.hostname, parts.port
        self._path = parts.path.rstrip("/") + "/explain" + (f"?tenant={quote(tenant, safe='')}" if tenant else "")

    def explain(self, body: bytes) -> dict[str, Any]:
        """What the gateway says of the request, its placement now included, or `{"error": …}`."""
        try:
            status, answer = self._ask(body)
            told = msgspec.json.decode(answer, type=dict[str, Any])
        except (OSError, HTTPException) as error:
            return {"error": f"the gateway at {self._host} cannot be asked: {error or type(error).__name__}"}
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {"error": f"what answers at {self._host} is no gateway's admin port"}
        if status == 200:
            return told
        refusal = told.get("error")
        message = refusal.get("message") if isinstance(refusal, dict) else None
        return {"error": message or f"the gateway answered {status}"}

    def _ask(self, body: bytes) -> tuple[int, bytes]:
        connection = self._connection(self._host, self._port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("POST", self._path, body, self._headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()
