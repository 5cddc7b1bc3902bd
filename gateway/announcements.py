"""What the log says of a gateway as a whole: what runs, and what happens to its workers."""

from __future__ import annotations

import logging

from gateway.fleet import Change, ChangeKind, Fleet
from gateway.settings import Config
from gateway.version import homing_version

log = logging.getLogger("homing.app")


def say_what_runs(config: Config, fleet: Fleet, *, api_port: int, admin_port: int) -> None:
    """Each tenant with whom it shares a cache, then the ports and how many workers are up."""
    for name, tenant in config.tenants.items():
        told = {"tenant": name, "isolation": tenant.isolation, "models": tenant.models or "all"}
        log.info("tenant", extra={"fields": told})
    listen = config.listen
    ports = {"api": f"{listen.host}:{api_port}", "admin": f"{listen.admin_host}:{admin_port}"}
    up = sum(worker.up for worker in fleet.workers)
    workers = f"{up} of {len(fleet.workers)} up"
    log.info("homing is listening", extra={"fields": {"version": homing_version(), **ports, "workers": workers}})


def log_change(change: Change) -> None:
    """Say what happened to a worker; what takes it away is a warning."""
    worker = change.worker
    fields = {"worker": worker.name, "url": worker.backend.address.url}
    if change.kind is ChangeKind.DOWN:
        log.warning("worker is down", extra={"fields": {**fields, "because": worker.trouble}})
    elif change.kind is ChangeKind.MODELS:
        models = [card.id for card in worker.cards or ()]
        log.info("worker lists its models", extra={"fields": {**fields, "models": models}})
    else:
        log.info("worker %s", change.kind.value, extra={"fields": fields})
