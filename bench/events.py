"""What following KV events costs the gateway: a block told, a match, a replay, memory, and letting workers go.

CPU time, best of several. With --check it fails where a bar is missed: a match that grows with the prompt, a replay
that keeps the event loop, memory that is not given back (100 rounds of 10 workers with 10,000 blocks each).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence

import msgspec
import zmq

from gateway.events.decode import Decoder
from gateway.events.sockets import Sockets
from gateway.events.sources import Source
from gateway.events.stream import Stream, Turns
from router.blocks import chain, seed
from router.cache_events import Removed, Stored
from router.encoders import pack
from router.knowledge import Knowledge
from router.known_blocks import KnownBlocks

MODEL = "m"
SIZE = 16
LONG_BLOCKS = 2048
"""A prompt of 32k tokens in blocks of 16."""

MATCH_BAR_SECONDS = 5e-6
TURN_BAR_SECONDS = 0.03
REGISTER_BAR_SECONDS = 0.1
LEFT_BEHIND_BAR = 0.01
BATCHES = 10_000


def best(work: Callable[[], object], times: int = 5) -> float:
    """The least CPU seconds that `work` took."""
    seconds = []
    for _ in range(times):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds)


def stored(start: int, blocks: int, parent: int | None = None) -> Stored:
    """Blocks named and filled by number, each unlike all others."""
    names = range(start, start + blocks)
    return Stored(list(names), parent, pack([number % 2**32 for number in names for _ in range(SIZE)]), SIZE)


def full(start: int, blocks: int) -> KnownBlocks:
    """A worker that holds chains of 500 blocks."""
    known = KnownBlocks(MODEL, SIZE)
    known.apply([stored(start + first, 500) for first in range(0, blocks, 500)])
    return known


def blocks_told() -> tuple[float, float]:
    """Microseconds for a block stored and for one removed, in runs of 500."""
    events = [stored(start, 500) for start in range(0, 50_000, 500)]
    removals = [Removed(event.block_hashes[::-1]) for event in events]
    known = KnownBlocks(MODEL, SIZE)
    store = remove = 1e9
    for _ in range(5):
        store = min(store, best(lambda: known.apply(events), 1))
        remove = min(remove, best(lambda: known.apply(removals), 1))
    return store / 50_000 * 1e6, remove / 50_000 * 1e6


def match_seconds(workers: int, held_blocks: int) -> float:
    """A prompt of 32k tokens matched at workers that hold half of it and have 64 requests on their way."""
    known = [Knowledge(MODEL, SIZE) for _ in range(workers)]
    run = stored(2**40, LONG_BLOCKS)
    own = chain(seed(salt=None, model=MODEL), run.tokens, SIZE).blocks
    half = Stored(run.block_hashes[: LONG_BLOCKS // 2], None, run.tokens[: len(run.tokens) // 2], SIZE)
    for each in known:
        each.apply([half, *(stored(start, 500) for start in range(0, held_blocks, 500))])
        for number in range(64):
            each.sent(f"r{number}", [*own[:100], *chain(bytes(16), pack([number] * 4096), SIZE).blocks])
    return best(lambda: [each.match(own) for each in known for _ in range(100)]) / 100


def bytes_a_block() -> float:
    """Memory that a worker with 50,000 blocks takes, per block."""
    tracemalloc.start()
    known = full(2**40, 50_000)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return taken / len(known)


def rounds(count: int) -> tuple[float, float]:
    """Rounds of 10 workers with 10,000 blocks each: what is left behind, as a share; the longest registration."""
    sizes, longest = [], 0.0
    gc.collect()
    for number in range(count):
        workers = [full(2**40 + (number * 10 + worker) * 10_000, 10_000) for worker in range(10)]
        most = sys.getallocatedblocks()
        started = time.process_time()
        workers.clear()
        Knowledge(MODEL, SIZE).apply([stored(1, 1)])
        longest = max(longest, time.process_time() - started)
        sizes.append(sys.getallocatedblocks())
    return (sizes[-1] - sizes[0]) / (most - sizes[0]), longest


async def replay() -> tuple[float, float, float]:
    """10,000 batches of 8 blocks over a socket: CPU seconds, the loop's longest turn, and what decoding is of it."""
    payloads = [_payload(number) for number in range(BATCHES)]
    decode = best(lambda: [Decoder().decode(payload) for payload in payloads], 1)
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.set_hwm(0)
    port = router.bind_to_random_port("tcp://127.0.0.1")
    sockets, knowledge = Sockets(zmq), Knowledge(MODEL, SIZE)
    stream = Stream(
        Source("tcp://127.0.0.1:9", f"tcp://127.0.0.1:{port}", "", 0),
        sockets, Turns(), time.monotonic, catch_up_seconds=60.0, apply=knowledge.apply, clear=knowledge.clear,
    )  # fmt: skip
    task = asyncio.create_task(stream.run())
    await asyncio.to_thread(_answer, router, payloads)
    gc.freeze()
    started = last = time.thread_time()
    longest = 0.0
    while len(knowledge) < BATCHES * 8:
        await asyncio.sleep(0)
        now = time.thread_time()
        longest, last = max(longest, now - last), now
    taken = time.thread_time() - started
    gc.unfreeze()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    sockets.close()
    context.destroy(linger=0)
    return taken, longest, decode


def _payload(number: int) -> bytes:
    event = stored(number * 8, 8)
    fields = {"type": "BlockStored", "block_hashes": event.block_hashes, "parent_block_hash": None, "block_size": SIZE,
              "token_ids": [each for each in event.block_hashes for _ in range(SIZE)], "medium": "GPU"}  # fmt: skip
    return msgspec.msgpack.encode([time.time(), [fields], 0])


def _answer(router: zmq.Socket, payloads: Sequence[bytes]) -> None:
    caller, *_ = router.recv_multipart()
    for number, payload in enumerate(payloads):
        router.send_multipart([caller, b"", b"", number.to_bytes(8, "big"), payload])
    router.send_multipart([caller, b"", b"", b"\xff" * 8, b""])


def main() -> int:
    """Print everything; 1 when --check finds a bar missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail where a bar is missed")
    parser.add_argument("--rounds", type=int, default=100, help="of workers that come and go")
    options = parser.parse_args()
    store, remove = blocks_told()
    print(f"a block told: stored {store:.2f} µs, removed {remove:.2f} µs; {bytes_a_block():.0f} bytes each")
    small, large = match_seconds(1, 1000), match_seconds(1, 100_000)
    print(f"a match of 32k tokens: {small * 1e6:.2f} µs with 1,000 blocks held, {large * 1e6:.2f} µs with 100,000")
    print(f"  at 64 workers {match_seconds(64, 1000) * 1e6:.0f} µs")
    taken, turn, decode = asyncio.run(replay())
    print(f"a replay of {BATCHES:,} batches: {taken:.2f} s of CPU, of which decoding {decode:.2f} s")
    print(f"  the event loop's longest turn meanwhile: {turn * 1e3:.1f} ms")
    left, registered = rounds(options.rounds)
    print(
        f"{options.rounds} rounds of 10 workers: {left:.2%} left behind; letting 10 go takes {registered * 1e3:.0f} ms"
    )
    missed = [
        large > MATCH_BAR_SECONDS, turn > TURN_BAR_SECONDS, left > LEFT_BEHIND_BAR, registered > REGISTER_BAR_SECONDS,
    ]  # fmt: skip
    return int(options.check and any(missed))


if __name__ == "__main__":
    sys.exit(main())
