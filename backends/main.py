"""`python -m backends.main`: load, say what fits, serve, and drain on SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
import time
from collections.abc import Sequence

from aiohttp import web

from backends.arguments import parse_arguments
from backends.events.publisher import EventsError
from backends.exchange.options import ExchangeOptionsError
from backends.loading import Loaded, StartError, load
from backends.log_line import Pulse
from backends.server import build_runner
from backends.wiring import build_worker

logger = logging.getLogger("homing.worker")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker until a signal ends it; 0 after a clean end, 2 when it cannot start as asked."""
    options = parse_arguments(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(asctime)s %(message)s", datefmt="%m-%d %H:%M:%S")
    try:
        loaded = load(options)
        return asyncio.run(serve(options, loaded))
    except (StartError, EventsError, ExchangeOptionsError) as error:
        print(f"homing worker: error: {error}", file=sys.stderr)
        return 2


async def serve(options: argparse.Namespace, loaded: Loaded) -> int:
    """Serve until SIGTERM or SIGINT, then let open requests finish. StartError when the port cannot be had."""
    pulse, signals = Pulse(), Signals()
    worker = build_worker(options, loaded, pulse)
    worker.events.start()
    worker.engine.start()
    runner = build_runner(worker, shutdown_seconds=options.shutdown_timeout)
    await runner.setup()
    try:
        await _listen(runner, options.host, options.port)
        names = ", ".join(worker.settings.served_names)
        logger.info("%s, serving %s", loaded.budget.sentence(loaded.config.max_model_tokens), names)
        logger.info("Listening on %s", " ".join(_urls(runner)))
        await signals.wait(pulse)
        logger.info("Draining: %d requests open, at most %g s", worker.in_flight, options.shutdown_timeout)
        worker.draining = True
    finally:
        await runner.cleanup()
        await worker.exchange.close()
        await worker.engine.stop()
        worker.offload.close()
        worker.events.stop()
    return 0


async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        raise StartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _urls(runner: web.AppRunner) -> list[str]:
    """Where the server really listens, also with port 0."""
    hosts = [(f"[{host}]" if ":" in host else host, port) for host, port, *_ in runner.addresses]
    return [f"http://{host}:{port}" for host, port in hosts]


class Signals:
    """SIGTERM and SIGINT as an event; once one has come, the next one ends the process at once."""

    def __init__(self) -> None:
        self._come = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._heard)

    def _heard(self) -> None:
        self._come.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.remove_signal_handler(number)

    async def wait(self, pulse: Pulse) -> None:
        """Wait for the first one, logging the periodic line meanwhile."""
        beating = asyncio.create_task(pulse.beat(time.monotonic))
        await self._come.wait()
        beating.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beating


if __name__ == "__main__":
    sys.exit(main())
