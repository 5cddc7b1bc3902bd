"""Real routers in front of the same simulated workers, one after the other: TTFT, hit rate and balance side by side.

    make bench-live            python -m bench.live.head_to_head [--json FILE] [--only NAME,…] [--requests N]

Exits with 1 when a bar on the chat slice is missed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from pathlib import Path

import uvloop

from bench.live.drive import Driver, Load
from bench.live.figures import Json, figures, table, write_json
from bench.live.processes import ChildFailed
from bench.live.slices import CONVERSATION_REQUESTS, Slice, agent_sessions, conversation, replayed
from bench.live.stage import PEERS, Router, Stage, gateways, peer, shared_gateways, simulated_workers, worker_counts

OURS = {"homing": 1, "homing, 3 replicas": 3}
ROUTERS = (*OURS, "round robin", *PEERS)
REPLAY = "homing, replayed"

OF_BEST_PEER = 0.45
OF_REPLAY = 1.15
THREE_OF_ONE = 1.15
LATE_SECONDS = 0.5
"""A driver that was this late (trace seconds, of the mean) was short of CPU: the figures are not to be trusted."""


def router_named(stage: Stage, worker_ports: Sequence[int], name: str) -> AbstractAsyncContextManager[Router]:
    """One of ROUTERS, started in front of these workers."""
    if name in PEERS:
        return peer(stage, worker_ports, name)
    if name == "round robin":
        return gateways(stage, worker_ports, model={"policy": "round_robin"})
    replicas = OURS[name]
    return gateways(stage, worker_ports) if replicas == 1 else shared_gateways(stage, worker_ports, replicas)


async def measure(stage: Stage, part: Slice, name: str) -> Json:
    """One router, with fresh workers, under the whole load."""
    planned = part.planned()
    async with AsyncExitStack() as stack:
        ports = await stack.enter_async_context(simulated_workers(stage))
        router = await stack.enter_async_context(router_named(stage, ports, name))
        load = Load(planned, router.ports, stage.speed_up, part.trace.closed_loop, router.headers)
        cpu_before = router.cpu_seconds()
        answers = await Driver(load).run()
        found = figures(answers, await worker_counts(ports), stage.speed_up)
        return {**found, "cpu_ms": 1000 * (router.cpu_seconds() - cpu_before) / len(answers)}


async def compare(stage: Stage, part: Slice, names: Sequence[str]) -> dict[str, Json]:
    """Every router on one slice; one that does not come up has its reason in place of figures."""
    stage = replace(stage, cache_blocks=part.cache_blocks)
    rows = {REPLAY: replayed(part)}
    for name in names:
        try:
            rows[name] = await measure(stage, part, name)
            print(f"  {name}: mean TTFT {rows[name]['ttft_s']['mean']:.2f} s", file=sys.stderr, flush=True)
        except ChildFailed as error:
            print(f"  {name}: {error}", file=sys.stderr, flush=True)
    return rows


def bars(rows: Mapping[str, Json]) -> list[tuple[str, float, float]]:
    """What is held to on the chat slice: a name, what was measured, the most that it may be."""
    mean = {name: row["ttft_s"]["mean"] for name, row in rows.items()}
    ours = mean.get("homing")
    if ours is None:
        return []
    found = [("homing's errors", float(rows["homing"]["errors"]), 0.0)]
    found.append(("homing / what the replay says", ours / mean[REPLAY], OF_REPLAY))
    peers = [mean[name] for name in PEERS if name in mean]
    if peers:
        found.append(("homing / the best peer", ours / min(peers), OF_BEST_PEER))
    three = "homing, 3 replicas"
    if three in mean:
        found.append(("3 replicas / one", mean[three] / ours, THREE_OF_ONE))
        found.append(("3 replicas' errors", float(rows[three]["errors"]), 0.0))
    return found


def report(slices: Mapping[str, Mapping[str, Json]], names: Sequence[str]) -> int:
    """Print everything; 1 when a bar was missed or could not be taken."""
    for title, rows in slices.items():
        print(f"\n{title} (times in trace seconds)\n{table(rows)}")
    chat = slices["conversation"]
    failed = [name for name in names if name not in chat]
    for name in failed:
        print(f"MISSED  {name} did not come up")
    results = bars(chat)
    for what, found, most in results:
        print(f"{'ok    ' if found <= most else 'MISSED'}  {what}: {found:.3f} (at most {most:g})")
    late = [name for name, row in chat.items() if row.get("driver_late_s", {}).get("mean", 0.0) > LATE_SECONDS]
    for name in late:
        print(f"LATE    the driver was short of CPU under {name}: its figures are too high")
    return 1 if failed or any(found > most for _, found, most in results) else 0


async def run(options: argparse.Namespace) -> int:
    names = [name.strip() for name in options.only.split(";")] if options.only else list(ROUTERS)
    unknown = set(names) - set(ROUTERS)
    if unknown:
        raise SystemExit(f"there is no router {', '.join(sorted(unknown))}; there are {'; '.join(ROUTERS)}")
    parts = {"conversation": conversation(options.requests)}
    if not options.no_agents:
        parts["agents"] = agent_sessions()
    with tempfile.TemporaryDirectory(prefix="homing-live-") as directory:
        stage = Stage(Path(directory), speed_up=options.speed_up)
        slices = {}
        for title, part in parts.items():
            print(f"{title}: {len(part.trace.requests)} requests", file=sys.stderr, flush=True)
            slices[title] = await compare(stage, part, names)
    if options.json:
        write_json(Path(options.json), {"speed_up": options.speed_up, "slices": slices})
    return report(slices, names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--only", metavar="NAMES", help=f"of {'; '.join(ROUTERS)}, joined by ;")
    parser.add_argument("--requests", type=int, default=CONVERSATION_REQUESTS, help="of the chat trace")
    parser.add_argument("--speed-up", type=float, default=15.0, help="trace seconds in a real one")
    parser.add_argument("--no-agents", action="store_true", help="leave the agents out")
    sys.exit(uvloop.run(run(parser.parse_args())))


if __name__ == "__main__":
    main()
