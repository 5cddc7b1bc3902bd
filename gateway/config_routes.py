"""The admin port's /config: which configuration is in use, since when, and why the file's was not taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web

from gateway.config_view import config_digest, moment, shown_config
from gateway.reload import Reloader
from gateway.secrets import fingerprint


class ConfigRoutes:
    """The handler. Nothing secret is shown: references stand for what is behind them, fingerprints for keys."""

    def __init__(self, reloader: Reloader) -> None:
        self._reloader = reloader

    def register(self, routes: web.UrlDispatcher) -> None:
        """Add the path."""
        routes.add_get("/config", self.show)

    async def show(self, request: web.Request) -> web.Response:
        """Digest, file, times, the last refusal with its reasons, how often it was read, keys' ends, and all settings.

        Replicas that were told the same have the same digest.
        """
        del request
        reloader = self._reloader
        refusal = reloader.refusal
        body = {
            "digest": config_digest(reloader.config),
            "file": str(reloader.source.path) if reloader.source is not None else None,
            "loaded_at": moment(reloader.loaded_at),
            "refused": None if refusal is None else {"at": moment(refusal.at), "reasons": list(refusal.reasons)},
            "reloads": reloader.counts,
            "keys": self._keys(),
            "settings": shown_config(reloader.config),
        }
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    def _keys(self) -> dict[str, list[Mapping[str, Any]]]:
        secrets = self._reloader.secrets
        return {
            tenant: [
                {
                    "fingerprint": fingerprint(digest),
                    "expires": moment(secrets.expiries[digest]) if digest in secrets.expiries else None,
                    "revoked": digest in secrets.revoked,
                }
                for digest in digests
            ]
            for tenant, digests in secrets.digests.items()
        }
