"""Drills under live load, three gateways on Redis: what a kill, an outage, a newcomer and a drain cost, in figures.

    make bench-drills          python -m bench.live.drills [--json FILE] [--only NAME,…]

Each drill is one run with fresh processes; one run without any is what it is compared with, request by request: the
trace's own hit rate moves by more from one minute to the next than a drill may cost. Exits with 1 on a miss.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.live.drive import Answer, Driver, Load
from bench.live.figures import Json, between, hit_rate, spread, write_json
from bench.live.processes import Child, ChildFailed, end, fetch, free_ports, running, start, until_ready
from bench.live.slices import Slice, conversation, replayed_hit_rate
from bench.live.stage import Router, Stage, gateways, redis_command, redis_url, simulated_workers
from router.replay.core import Churn

GATEWAYS = 3
TIME_SCALE = 0.865
"""Load 0.7 of what least requests sustain: one worker of eight may leave."""

WARM_SECONDS = 200.0
BEFORE_SECONDS = 200.0
BACK_WITHIN_SECONDS = 120.0
AFTER_SECONDS = 240.0
REDIS_AWAY_REAL_SECONDS = 20.0
POINTS = 0.02


@dataclass
class Scene:
    """What a drill may lay hands on. `spare_port` is of a worker that no gateway knows yet."""

    driver: Driver
    router: Router
    redis: Child
    spare_port: int
    stack: AsyncExitStack
    notes: dict[str, int]
    redis_away_seconds: float = REDIS_AWAY_REAL_SECONDS

    async def restart(self, child: Child) -> None:
        """Kill a process, start it again as it was, and wait until it is ready."""
        await child.kill()
        await self.start_again(child)

    async def start_again(self, child: Child) -> None:
        """Start a process that has ended as it was, and wait until it is ready."""
        again = await start(child.command)
        self.stack.push_async_callback(end, again)
        await until_ready(again)

    async def replicas_in_state(self, state: str) -> int:
        """How many gateways say in their metrics that they are joined, joining or alone."""
        pages = [await fetch(f"http://127.0.0.1:{port}/metrics") for port in self.router.admin_ports]
        return sum(f'homing_replica_state{{state="{state}"}} 1.0'.encode() in page for _, page in pages)

    async def tell_gateways(self, method: str, path: str, body: bytes = b"") -> None:
        """A change of the fleet, made at each gateway's admin port as an operator would."""
        for port in self.router.admin_ports:
            status, answer = await fetch(f"http://127.0.0.1:{port}{path}", method, body)
            if not 200 <= status < 300:
                raise ChildFailed(f"{method} {path} was answered with {status}: {answer.decode(errors='replace')}")


async def nothing(_scene: Scene) -> None:
    """The run that the others are compared with."""


async def kill_a_gateway(scene: Scene) -> None:
    """SIGKILL one of three, and start it again."""
    await scene.restart(scene.router.children[0])


async def kill_redis(scene: Scene) -> None:
    """SIGKILL, and an empty one at the same place after a while."""
    await scene.redis.kill()
    await asyncio.sleep(scene.redis_away_seconds)
    scene.notes["replicas that went on alone"] = await scene.replicas_in_state("alone")
    await scene.start_again(scene.redis)


async def add_a_worker(scene: Scene) -> None:
    """A ninth, empty."""
    body = json.dumps({"name": "worker-8", "url": f"http://127.0.0.1:{scene.spare_port}"}).encode()
    await scene.tell_gateways("POST", "/workers", body)


async def drain_a_worker(scene: Scene) -> None:
    """One of eight gets nothing new any more."""
    await scene.tell_gateways("POST", "/workers/worker-3/drain")


CALM = "undisturbed"
DRILLS: Mapping[str, Callable[[Scene], Awaitable[None]]] = {
    CALM: nothing,
    "gateway killed": kill_a_gateway,
    "redis killed": kill_redis,
    "ninth worker": add_a_worker,
    "worker drained": drain_a_worker,
}


CHURN = {"ninth worker": Churn(0.0, 8, joins=True), "worker drained": Churn(0.0, 3, joins=False)}
"""Drills after which the fleet has another size."""


@dataclass(frozen=True)
class Timing:
    """Moments of a run in trace seconds: when the drill begins, and how long it goes on after the drill's end."""

    begins: float = WARM_SECONDS + BEFORE_SECONDS
    before: float = BEFORE_SECONDS
    back_within: float = BACK_WITHIN_SECONDS
    after: float = AFTER_SECONDS


@dataclass(frozen=True)
class Run:
    """One drill's answers, and when (trace seconds) it was over."""

    answers: Sequence[Answer]
    over: float
    notes: Mapping[str, int]


async def drill(stage: Stage, part: Slice, name: str, timing: Timing) -> Run:
    """Start everything afresh, and do the drill while the load runs."""
    async with AsyncExitStack() as stack:
        *ports, spare = await stack.enter_async_context(simulated_workers(stage, stage.workers + 1))
        (redis_port,) = free_ports(1)
        redis = await stack.enter_async_context(running(redis_command(stage, redis_port)))
        redis_section = {"url": redis_url(redis_port)}
        router = await stack.enter_async_context(gateways(stage, ports, GATEWAYS, redis=redis_section))
        driver = Driver(Load(part.planned(), router.ports, stage.speed_up, headers=router.headers))
        load = asyncio.ensure_future(driver.run())
        stack.callback(load.cancel)
        await driver.until(timing.begins)
        scene = Scene(driver, router, redis, spare, stack, {})
        await DRILLS[name](scene)
        over = driver.now
        if name != CALM:  # which the longest drill is compared with
            driver.stop_sending(over + timing.back_within + timing.after)
        answers = await load
        scene.notes["replicas joined at the end"] = await scene.replicas_in_state("joined")
        return Run(answers, over, scene.notes)


def owed_to_size(part: Slice, name: str, run: Run, timing: Timing) -> float:
    """By how much the hit rate differs after a drill because there are more or fewer caches, as the replay says."""
    if name not in CHURN:
        return 0.0
    start_at = run.over + timing.back_within
    end_at, churn = start_at + timing.after, [CHURN[name]._replace(at_seconds=timing.begins)]
    return replayed_hit_rate(part, start_at, end_at, churn) - replayed_hit_rate(part, start_at, end_at)


def figures_of(run: Run, calm: Run, timing: Timing, owed: float = 0.0) -> Json:
    """A drill beside the undisturbed run: windows before, during, in the time for coming back, and after it.

    `owed` is what the size of the fleet makes of the hit rate after it: points that no router could keep are not lost.
    """
    windows = {
        "before": (timing.begins - timing.before, timing.begins),
        "during": (timing.begins, run.over),
        "coming back": (run.over, run.over + timing.back_within),
        "after": (run.over + timing.back_within, run.over + timing.back_within + timing.after),
    }
    rows = {name: _window(run, calm, *window) for name, window in windows.items()}
    cut = [answer for answer in run.answers if answer.error and answer.broken]
    failed = [answer for answer in run.answers if answer.error and not answer.broken]
    return {
        "requests": len(run.answers),
        "failed": len(failed),
        "failures": sorted({answer.error or "" for answer in failed}),
        "cut_in_flight": len(cut),
        "sent_again": sum(answer.resent > 0 for answer in run.answers),
        "over_after_s": run.over - timing.begins,
        "driver_late_s_mean": spread([answer.lateness for answer in run.answers])["mean"],
        "notes": dict(run.notes),
        "windows": rows,
        "owed_to_size_points": 100 * owed,
        "lost_points": 100 * (rows["after"]["hit_undisturbed"] + owed - rows["after"]["hit"]),
    }


def _window(run: Run, calm: Run, start_at: float, end_at: float) -> Json:
    """Both runs over the requests that were planned for the window."""
    mine = between(run.answers, start_at, end_at)
    numbers = {answer.number for answer in mine}
    theirs = [answer for answer in calm.answers if answer.number in numbers]
    return {
        "requests": len(mine),
        "hit": hit_rate(mine),
        "hit_undisturbed": hit_rate(theirs),
        "ttft_s": spread([answer.ttft for answer in mine if not answer.error])["mean"],
        "ttft_s_undisturbed": spread([answer.ttft for answer in theirs if not answer.error])["mean"],
    }


def show(name: str, found: Json) -> None:
    """One drill's windows, one a line."""
    print(
        f"\n{name}: {found['requests']} requests, {found['failed']} failed, {found['cut_in_flight']} cut in flight, "
        f"{found['sent_again']} sent again elsewhere; over after {found['over_after_s']:.0f} s of trace\n"
        f"  {found['lost_points']:+.1f} points of hit rate lost, {found['owed_to_size_points']:+.1f} for the size "
        f"of the fleet allowed for; driver late by {found['driver_late_s_mean']:.2f} s; "
        + "; ".join(f"{what}: {count}" for what, count in found["notes"].items())
    )
    for window, row in found["windows"].items():
        print(
            f"  {window:12} {row['requests']:5} requests   hit {row['hit']:6.1%} (undisturbed "
            f"{row['hit_undisturbed']:6.1%})   mean TTFT {row['ttft_s']:5.2f} s ({row['ttft_s_undisturbed']:5.2f} s)"
        )


def misses(found: Mapping[str, Json]) -> list[str]:
    """What is held to: no failed request, and the hit rate back in time."""
    wrong = [
        f"{name}: {row['failed']} requests failed ({row['failures']})" for name, row in found.items() if row["failed"]
    ]
    slow = [
        f"{name}: {row['lost_points']:.1f} points of hit rate are still lost"
        for name, row in found.items()
        if row["lost_points"] > 100 * POINTS
    ]
    return wrong + slow


async def run(options: argparse.Namespace) -> int:
    names = options.only.split(",") if options.only else list(DRILLS)
    names = [CALM, *(name for name in names if name != CALM)]
    timing, part, found = Timing(), conversation(options.requests, TIME_SCALE), {}
    with tempfile.TemporaryDirectory(prefix="homing-drills-") as directory:
        stage = Stage(Path(directory), speed_up=options.speed_up)
        calm = None
        for name in names:
            print(f"{name} …", file=sys.stderr, flush=True)
            done = await drill(stage, part, name, timing)
            calm = calm or done
            found[name] = figures_of(done, calm, timing, owed_to_size(part, name, done, timing))
            show(name, found[name])
    if options.json:
        write_json(Path(options.json), {"speed_up": options.speed_up, "drills": found})
    wrong = misses(found)
    print(
        "\n" + "\n".join(f"MISSED  {line}" for line in wrong) if wrong else "\nok: nothing failed, hit rates are back"
    )
    return 1 if wrong else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--only", metavar="NAMES", help=f"of {', '.join(DRILLS)}")
    parser.add_argument("--requests", type=int, default=4000, help="of the chat trace")
    parser.add_argument("--speed-up", type=float, default=10.0, help="trace seconds in a real one")
    sys.exit(uvloop.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()
