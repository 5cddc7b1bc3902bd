"""What one request costs in the router and in the preparation of its prompt, step by step, without a socket.

    python bench/request_path.py [--rounds N] [--workers 4 8] [--sizes 1 32 200] [--json] [--check]

`seen`: 32 bodies that share 8 heads (as bench/native/mkbodies.py makes them), sent again and again, sixteen in flight;
SmolLM2's tokeniser, every fold rule, the policy `homing`. Steps are `parse` (bytes to a call), `prepare` (fold, render,
look up, chains), `view` (the fleet as placement sees it), `place`, `lease` (taken and given back), `first` (token) and
`finished`. Each figure is CPU µs, the least of several rounds, the timer's own cost taken off. A preparation that left
the event loop's thread is counted under `hops`: with the memo warm there must be none.

`unseen`: every body new, finished in the same thread; the split is measured on the same texts, `rest` is what is left.
`gap`: how long the event loop stood still while a long new prompt was prepared, milliseconds of wall time.
`--check` exits 1 where the sum of all but `parse` misses its bar, or where anything hopped.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import time
from collections import deque
from collections.abc import Coroutine, Iterator
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gateway.addresses import WorkerAddress
from gateway.fleet import Fleet
from gateway.model_cards import ModelCard
from gateway.prompts import Prompts
from gateway.serving import Serving
from gateway.settings import Model
from gateway.wire import Call, Endpoint, parse_call
from gateway.worker_state import Backend, ProbeResult, ServingFacts
from router.blocks import chain
from router.core import Prompt
from router.normalise import DEFAULT, fold_messages
from router.tokenise import find_smollm2

MODEL = "dummy"
BODIES, HEADS, IN_FLIGHT = 32, 8, 16
STEPS = ("parse", "prepare", "view", "place", "lease", "first", "finished")
SIZES_KIBIBYTES = (1, 32, 200)
BARS_MICROSECONDS = {1: 30.0, 32: 45.0, 200: 100.0}
"""For all steps but `parse`, by size of the body."""

GAP_KIBIBYTES = (32, 200, 1024)
CACHED_SHARE, OUTPUT_TOKENS = 0.96, 64
"""What workers report of every prompt."""

_SYLLABLES = re.findall(r"\w+", "ta re mi lo ka ne su vi do pa ri en or al ic ment tion ing the and of pro con ver ter")
_RANDOM = random.Random(7)
_WORDS = ["".join(_RANDOM.choice(_SYLLABLES) for _ in range(_RANDOM.choice([1, 2, 2, 3]))) for _ in range(5000)]


def text_of(characters: int, seed: int) -> str:
    """Seeded words with some punctuation."""
    dice, out, length = random.Random(seed), [], 0
    while length < characters:
        word = dice.choice(_WORDS) + (dice.choice([", ", ". ", "\n", "; "]) if dice.random() < 0.1 else " ")
        out.append(word)
        length += len(word)
    return "".join(out)[:characters]


def body_of(kibibytes: int, head: int, tail: int) -> bytes:
    """A request of that size: a system text of seven parts in ten by `head`, a user's text by `tail`."""
    size = kibibytes * 1024
    system = f"#gap=0,n=64# You are assistant {head}. " + text_of(int(size * 0.7) - 150, 1000 + head)
    user = text_of(int(size * 0.3) - 100, 5000 + tail)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    return json.dumps({"model": MODEL, "stream": True, "max_tokens": 64, "messages": messages}).encode()


class Stage:
    """Fleet, prompts and router as a gateway would have them; `hops` counts preparations that left the thread."""

    def __init__(self, workers: int, *, numbered: bool = False) -> None:
        self.numbered = numbered
        self.fleet = Fleet({MODEL: ServingFacts()})
        for number in range(workers):
            self.fleet.add(
                Backend(f"worker-{number}", WorkerAddress("127.0.0.1", 9000 + number, ""), frozenset({MODEL}))
            )
            self.fleet.probed(f"worker-{number}", ProbeResult(cards=(ModelCard(id=MODEL),)), 0.0)
        self.prompts = Prompts()
        self.serving = Serving({MODEL: Model(backends=(), tokenizer=str(find_smollm2()))}, self.fleet, self.prompts)
        asyncio.run(self.serving.load_all())
        self.router = self.serving.router(MODEL)
        self.spent = dict.fromkeys(STEPS, 0)
        self.hops = 0
        self._now, self._ids, self._flying = 1000.0, count(), deque[tuple[str, int, Any]]()

    async def prepare(self, call: Call) -> Prompt:
        """As the proxy asks for it."""
        return await self.serving.prepare(call.model, call.source, salt=None, rules=DEFAULT)

    def serve(self, body: bytes) -> None:
        """Everything one request needs of prompts, fleet and router; the oldest of sixteen in flight ends."""
        clock, spent = time.thread_time_ns, self.spent
        began = clock()
        call = parse_call(Endpoint.CHAT, body)
        parsed = clock()
        prompt = self._at_once(call)
        prepared = clock()
        view = self.fleet.view(call.model)
        viewed = clock()
        request_id = f"{next(self._ids):x}"
        self._now += 0.001
        placement = self.router.place(
            prompt,
            view,
            self._now,
            request_id=request_id,
            tenant="team",
            max_tokens=call.max_tokens,
            numbered=self.numbered,
        )
        placed = clock()
        lease = self.fleet.lease(placement.worker or "")
        _run(lease.__aenter__())
        leased = clock()
        self.router.first_token(request_id, self._now + 0.02)
        started = clock()
        times = (began, parsed, prepared, viewed, placed, leased, started)
        for name, before, after in zip(STEPS, times, times[1:], strict=False):
            spent[name] += after - before
        self._flying.append((request_id, prompt.tokens, lease))
        if len(self._flying) > IN_FLIGHT:
            self._end(*self._flying.popleft())

    def _end(self, request_id: str, tokens: int, lease: Any) -> None:
        cached, began = int(CACHED_SHARE * tokens), time.thread_time_ns()
        self.router.finished(
            request_id,
            self._now + 0.03,
            reported_cached_tokens=cached,
            prompt_tokens=tokens,
            output_tokens=OUTPUT_TOKENS,
        )
        finished = time.thread_time_ns()
        _run(lease.__aexit__(None, None, None))
        self.spent["lease"] += time.thread_time_ns() - finished
        self.spent["finished"] += finished - began

    def _at_once(self, call: Call) -> Prompt:
        """The prompt, where it can be made without waiting; else it is waited for, and counted."""
        work = self.prepare(call)
        try:
            work.send(None)
        except StopIteration as ended:
            return ended.value
        except RuntimeError:  # no loop is running: it wanted a thread
            pass
        self.hops += 1
        return asyncio.run(self.prepare(call))


def _run(work: Coroutine[Any, Any, Any]) -> None:
    """Run what never waits."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise RuntimeError("it waits")


def timer_nanoseconds() -> float:
    """What reading the clock once adds to a step."""
    spans = []
    for _ in range(20_000):
        before = time.thread_time_ns()
        spans.append(time.thread_time_ns() - before)
    return sorted(spans)[len(spans) // 10]


def seen_microseconds(workers: int, kibibytes: int, rounds: int) -> dict[str, float]:
    """By step, the least mean over `rounds` rounds of the 32 bodies; and how many hops a request took."""
    stage, timer = Stage(workers), timer_nanoseconds()
    bodies = [body_of(kibibytes, number % HEADS, number) for number in range(BODIES)]
    for body in (*bodies, *bodies):
        stage.serve(body)
    stage.hops, least = 0, dict.fromkeys(STEPS, float("inf"))
    for _ in range(rounds):
        stage.spent = dict.fromkeys(STEPS, 0)
        for body in bodies:
            stage.serve(body)
        for name in STEPS:
            reads = 2 if name == "lease" else 1
            least[name] = min(least[name], (stage.spent[name] / BODIES - reads * timer) / 1e3)
    stage.router.check_integrity()
    stage.prompts.close()
    return {**least, "hops": stage.hops / (rounds * BODIES)}


def unseen_microseconds(kibibytes: int, rounds: int) -> dict[str, float]:
    """Preparing prompts that nothing is known of, and where the time goes."""
    stage, serial = Stage(4), count(100)
    builder = stage.prompts.of(MODEL)._own
    least = dict.fromkeys(("prepare", "tokenise", "fold", "hash"), float("inf"))
    for _ in range(max(3, rounds // 4)):
        calls = [parse_call(Endpoint.CHAT, body_of(kibibytes, number, number)) for number in _few(serial)]
        spent = dict.fromkeys(least, 0.0)
        for call in calls:
            before = time.thread_time_ns()
            builder.build(call.source, salt=None, model=MODEL, rules=DEFAULT)
            spent["prepare"] += time.thread_time_ns() - before
        for call in calls:
            before = time.thread_time_ns()
            fold_messages(call.source.messages or (), None, DEFAULT)
            spent["fold"] += time.thread_time_ns() - before
            text = builder.text.template.render(call.source.messages or ())
            before = time.thread_time_ns()
            tokens = builder.text.tokeniser.encode(text)
            encoded = time.thread_time_ns()
            chain(bytes(16), tokens, builder.block_tokens)
            spent["hash"] += time.thread_time_ns() - encoded
            spent["tokenise"] += encoded - before
        for name, nanoseconds in spent.items():
            least[name] = min(least[name], nanoseconds / len(calls) / 1e3)
    stage.prompts.close()
    return {**least, "rest": least["prepare"] - least["tokenise"] - least["fold"] - least["hash"]}


def _few(serial: Iterator[int]) -> list[int]:
    return [next(serial) for _ in range(4)]


def gap_milliseconds(kibibytes: int, times: int = 5) -> float:
    """The longest that the event loop stood still while a new prompt was prepared: the least of several."""
    stage = Stage(4)
    calls = [parse_call(Endpoint.CHAT, body_of(kibibytes, 9000 + number, 9000 + number)) for number in range(times)]
    gaps = sorted(asyncio.run(_gap(stage, call)) for call in calls)
    stage.prompts.close()
    return gaps[0] * 1e3


async def _gap(stage: Stage, call: Call) -> float:
    preparing = asyncio.create_task(stage.prepare(call))
    longest, last = 0.0, time.perf_counter()
    while not preparing.done():
        await asyncio.sleep(0)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest


def main() -> int:
    """Print the tables; with --check, hold them against the bars."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--workers", type=int, nargs="+", default=[4, 8])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES_KIBIBYTES)
    parser.add_argument("--json", action="store_true", help="print one object instead of tables")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    seen = {
        (workers, size): seen_microseconds(workers, size, arguments.rounds)
        for workers in arguments.workers
        for size in arguments.sizes
    }
    missed = []
    for (workers, size), row in seen.items():
        row["sum"] = sum(row[name] for name in STEPS[1:])
        over = row["hops"] or row["sum"] > BARS_MICROSECONDS.get(size, float("inf"))
        missed += [f"{size} KiB, {workers} workers: {row['sum']:.0f} µs, {row['hops']} hops"] if over else []
    unseen = {size: unseen_microseconds(size, arguments.rounds) for size in arguments.sizes}
    gaps = {size: gap_milliseconds(size) for size in GAP_KIBIBYTES}
    if arguments.json:
        told = [{"workers": workers, "kibibytes": size, **row} for (workers, size), row in seen.items()]
        print(json.dumps({"seen": told, "unseen": unseen, "gap_milliseconds": gaps}, indent=1))
    else:
        print_tables(seen, unseen, gaps)
        print("\n".join(missed) or "all bars are met")
    return 1 if missed and arguments.check else 0


def print_tables(
    seen: dict[tuple[int, int], dict[str, float]], unseen: dict[int, dict[str, float]], gaps: dict[int, float]
) -> None:
    """For people."""
    print("seen, CPU µs a request; the sum is of all but parse")
    print("workers KiB " + " ".join(f"{name:>8}" for name in (*STEPS, "hops", "sum")))
    for (workers, size), row in seen.items():
        print(f"{workers:>7} {size:>3} " + " ".join(f"{row[name]:>8.1f}" for name in (*STEPS, "hops", "sum")))
    print("unseen, CPU µs a request\n    KiB " + " ".join(f"{name:>8}" for name in next(iter(unseen.values()))))
    for size, row in unseen.items():
        print(f"{size:>7} " + " ".join(f"{value:>8.0f}" for value in row.values()))
    print("the loop stands still, ms: " + ", ".join(f"{size} KiB {gap:.1f}" for size, gap in gaps.items()))


if __name__ == "__main__":
    sys.exit(main())
