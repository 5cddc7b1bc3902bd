"""Runs the load once for each policy, with fresh workers and caches, and returns the figures."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from gateway.demo.drive import Target, drive
from gateway.demo.processes import free_port, running
from gateway.demo.report import Figures, figures
from gateway.demo.setup import MODEL, WORKERS, Stage, gateway_config, worker_arguments

POLICIES = ("round_robin", "homing")


async def compare(stage: Stage) -> dict[str, Figures]:
    """The same load under every policy of POLICIES, one after the other."""
    return {policy: await _run(stage, policy) for policy in POLICIES}


async def _run(stage: Stage, policy: str) -> Figures:
    total = sum(len(conversation.turns) for conversation in stage.load)
    async with _fleet(stage, policy) as url:
        target = Target(url, MODEL, stage.keys)
        started = time.perf_counter()
        answers = await drive(target, stage.load, stage.pace, lambda done: _progress(policy, done, total))
        return figures(answers, time.perf_counter() - started)


@asynccontextmanager
async def _fleet(stage: Stage, policy: str) -> AsyncIterator[str]:
    """Three workers and a gateway in front; yields the gateway's address."""
    print(f"{policy}: starting {WORKERS} workers and a gateway", file=sys.stderr)
    async with AsyncExitStack() as stack:
        ports = [free_port() for _ in range(WORKERS)]
        starts = [stack.enter_async_context(_worker(stage, policy, number, port)) for number, port in enumerate(ports)]
        await asyncio.gather(*starts)
        workers = {f"worker-{number}": f"http://127.0.0.1:{port}" for number, port in enumerate(ports)}
        port, admin_port = free_port(), free_port()
        config = gateway_config(stage, policy, port, admin_port, workers)
        ready = f"http://127.0.0.1:{admin_port}/readyz"
        log = stage.directory / f"{policy}-gateway.log"
        arguments = ["gateway", "serve", "--config", str(config)]
        await stack.enter_async_context(running("the gateway", arguments, ready, log))
        yield f"http://127.0.0.1:{port}"


def _worker(stage: Stage, policy: str, number: int, port: int) -> AbstractAsyncContextManager[None]:
    log = stage.directory / f"{policy}-worker-{number}.log"
    return running(f"worker {number}", worker_arguments(stage, port), f"http://127.0.0.1:{port}/health", log)


def _progress(policy: str, done: int, total: int) -> None:
    end = "\n" if done == total or not sys.stderr.isatty() else ""
    if sys.stderr.isatty() or done % 10 == 0 or done == total:
        print(f"\r{policy}: {done}/{total} answers", end=end, file=sys.stderr, flush=True)
