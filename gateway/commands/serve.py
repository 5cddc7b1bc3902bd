"""`homing serve`: run the gateway until SIGTERM or SIGINT, then let open requests end."""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec

from gateway.allocator import keep_large_blocks_apart
from gateway.app import CannotListen, Gateway
from gateway.cli import CONFIG_VARIABLE, MISUSE, CommandError
from gateway.config import Config, ConfigError, Secrets, check_config, config_for_workers, load_config, load_secrets
from gateway.descriptors import raise_limit
from gateway.logs import RequestLog, set_up, tear_down
from gateway.processes.child import Place, own_config, tell_parent
from gateway.processes.serve import serve_processes
from gateway.reload import Source
from gateway.settings import Listen
from router.tokenise import TokeniserError

COLLECTIONS = (5000, 10, 140)
"""When Python looks for cycles. A look at everything is a hundred times rarer than by default: it stands still for
0.7 s with 64 full directories (bench/scale.py), and they hold no garbage: who forgets a worker cuts its links. The
first look is rarer too: a request leaves no cycles.
"""

MOST_PROCESSES = 64

HOW_TO_START = "homing serve --config FILE, or for a first try: homing serve --worker http://127.0.0.1:8000"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's options."""
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--config", type=Path, metavar="FILE", help=f"configuration (default: ${CONFIG_VARIABLE})")
    source.add_argument(
        "--worker",
        action="append",
        metavar="URL",
        help="a worker, instead of a file; loopback only, no keys; repeat it",
    )
    parser.add_argument("--host", help="address of the API, instead of listen.host")
    parser.add_argument("--port", type=int, help="port of the API, instead of listen.port; 0 takes a free one")
    parser.add_argument("--admin-port", type=int, help="port of /readyz and /metrics, instead of listen.admin_port")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="serve on N cores (docs/operations.md)")
    parser.add_argument("--as-process", type=Place.parse, help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int:
    """Serve; 0 after a drain, 2 for a wrong configuration, 1 when it cannot start."""
    if not 1 <= arguments.processes <= MOST_PROCESSES:
        then = f"--processes takes a number from 1 to {MOST_PROCESSES}; a core serves one"
        raise CommandError(f"not a number of processes: {arguments.processes}", then=then, code=MISUSE)
    config = configuration(arguments)
    secrets = load_secrets(config, os.environ)
    handler = set_up(config.log, sys.stderr)
    raise_limit()
    keep_large_blocks_apart()
    usual = gc.get_threshold()
    gc.set_threshold(*COLLECTIONS)
    try:
        if arguments.processes > 1:
            return run_loop(serve_processes(config, arguments))
        return run_loop(serve(config, secrets, source_of(arguments), arguments.as_process))
    except CannotListen as error:
        raise CommandError(str(error), then="choose another with --host, --port or --admin-port") from None
    except TokeniserError as error:
        raise CommandError(str(error), then="see models.NAME.tokenizer in docs/configuration.md", code=MISUSE) from None
    finally:
        gc.set_threshold(*usual)
        tear_down(handler)


def configuration(arguments: argparse.Namespace) -> Config:
    """The configuration that the options ask for, checked; `ConfigError` or `CommandError` says what is wrong."""
    config = _asked(arguments)
    return own_config(config, arguments.as_process) if arguments.as_process else config


def _asked(arguments: argparse.Namespace) -> Config:
    if arguments.worker:
        return config_for_workers(arguments.worker, _listen(arguments, Listen()))
    path = arguments.config or os.environ.get(CONFIG_VARIABLE)
    if not path:
        raise CommandError("no configuration and no worker", then=HOW_TO_START, code=MISUSE)
    config = load_config(Path(path), os.environ)
    listen = _listen(arguments, config.listen)
    if listen != config.listen:
        config = msgspec.structs.replace(config, listen=listen)
        check_config(config, os.environ)
    return config


def source_of(arguments: argparse.Namespace) -> Source | None:
    """Where the options say that the configuration comes from, to be read anew; None without a file."""
    path = arguments.config or os.environ.get(CONFIG_VARIABLE)
    if arguments.worker or not path:
        return None

    def load() -> tuple[Config, Secrets]:
        config = configuration(arguments)
        return config, load_secrets(config, os.environ)

    return Source(Path(path), load)


async def serve(config: Config, secrets: Secrets, source: Source | None = None, place: Place | None = None) -> int:
    """Run a gateway until a signal asks it to leave; a second signal ends the drain. SIGHUP reads the file anew.

    With a `place` it is one of several, and shares its port with the others.
    """
    signals = Signals()
    gateway = Gateway(config, secrets, source=source, request_log=RequestLog(config.log, sys.stderr))
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, gateway.reloader.ask)
    gateway.server.shares_port = place is not None
    if not await signals.unless_told(gateway.__aenter__()):
        return 0
    line = await tell_parent(place, gateway.admin_port) if place is not None else None
    try:
        await signals.told()
        await signals.unless_told(gateway.drain())
    finally:
        if line is not None:
            line.cancel()
        await gateway.__aexit__(None, None, None)
    return 0


class Signals:
    """SIGTERM and SIGINT as something to wait for. Made inside the running loop."""

    def __init__(self) -> None:
        self._told = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told.set)

    async def told(self) -> None:
        """Wait for the next signal."""
        await self._told.wait()
        self._told.clear()

    async def unless_told(self, work: Coroutine[Any, Any, Any]) -> bool:
        """Do `work`, but give it up at the next signal; whether it was done. What it raises comes out."""
        doing, waiting = asyncio.create_task(work), asyncio.create_task(self.told())
        await asyncio.wait((doing, waiting), return_when=asyncio.FIRST_COMPLETED)
        done = doing.done()
        for task in (doing, waiting):
            task.cancel()
        await asyncio.gather(doing, waiting, return_exceptions=True)
        if done:
            doing.result()
        return done


def run_loop(main: Coroutine[Any, Any, int]) -> int:
    """Run on uvloop where it is installed, else on asyncio's own loop."""
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return asyncio.run(main)
    result: int = uvloop.run(main)
    return result


def _listen(arguments: argparse.Namespace, listen: Listen) -> Listen:
    asked = {"host": arguments.host, "port": arguments.port, "admin_port": arguments.admin_port}
    for name in ("port", "admin_port"):
        if asked[name] is not None and not 0 <= asked[name] <= 65535:
            raise ConfigError(f"a port is a number from 0 to 65535, got {asked[name]}", path=("listen", name))
    return msgspec.structs.replace(listen, **{name: value for name, value in asked.items() if value is not None})
