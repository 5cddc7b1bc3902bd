"""`homing serve --processes N`: reserves the port, runs the processes and their admin port, passes signals on."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from gateway.app import CannotListen, listen_at
from gateway.config import Config
from gateway.metrics import Metrics
from gateway.processes.admin import ProcessesAdmin
from gateway.processes.parent import Processes, StartFailed, reserve_port
from gateway.processes.sums import Sums
from gateway.tenant_settings import TenantSettings

LEAVE = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("homing.processes")


async def serve_processes(config: Config, arguments: argparse.Namespace) -> int:
    """Run `arguments.processes` gateways until a signal asks them to leave; a second one ends their drain.

    Returns what a process that cannot start ends with, else 0. `CannotListen` when a port is taken.
    """
    listen, metrics, sums = config.listen, Metrics(CollectorRegistry()), Sums()
    with _reserved(listen.host, listen.port) as reserved:
        port = int(reserved.getsockname()[1])
        processes = Processes(arguments.processes, command_of(arguments, port), metrics, sums)
        _pass_signals_on(processes)
        async with ProcessesAdmin(processes, metrics, sums) as admin:
            admin_port = await listen_at(admin.start, listen.admin_host, listen.admin_port)
            ports = {"api": f"{listen.host}:{port}", "admin": f"{listen.admin_host}:{admin_port}"}
            warn_of_limits(config, arguments.processes)
            log.info("processes start", extra={"fields": {"processes": arguments.processes, **ports}})
            try:
                await processes.run()
            except StartFailed as failed:
                return failed.code if failed.code > 0 else 1
    return 0


def warn_of_limits(config: Config, processes: int) -> None:
    """Say so where every process will let through what one may: nothing else would."""
    counted = [name for name, tenant in config.tenants.items() if _is_counted(tenant)]
    if config.redis is None and counted:
        fields = {"tenants": counted, "up_to_times": processes, "then": "set redis, or divide the limits"}
        log.warning("each process counts limits alone", extra={"fields": fields})


def _is_counted(tenant: TenantSettings) -> bool:
    limits = tenant.limits
    each = () if limits is None else (limits.tokens_per_minute, limits.requests_per_minute, limits.concurrency)
    return tenant.budget is not None or any(bound is not None for bound in each)


def command_of(arguments: argparse.Namespace, port: int) -> Callable[[int, int], Sequence[str]]:
    """How a process is started: with the parent's own options, the port that was found, and its place."""
    options = ["--port", str(port)]
    if arguments.config:
        options += ["--config", str(arguments.config)]
    for url in arguments.worker or ():
        options += ["--worker", url]
    if arguments.host:
        options += ["--host", arguments.host]

    def command(index: int, line: int) -> Sequence[str]:
        return [sys.executable, "-m", "gateway", "serve", *options, "--as-process", f"{index}:{line}"]

    return command


def _reserved(host: str, port: int) -> socket.socket:
    try:
        return reserve_port(host, port)
    except OSError as error:
        raise CannotListen(f"cannot listen on {host}:{port}: {error.strerror or error}") from None


def _pass_signals_on(processes: Processes) -> None:
    loop = asyncio.get_running_loop()
    for number in LEAVE:
        loop.add_signal_handler(number, processes.leave, signal.SIGTERM)
    loop.add_signal_handler(signal.SIGHUP, processes.tell, signal.SIGHUP)
