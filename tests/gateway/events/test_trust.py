"""When what a worker tells is gone by, when it is not any more, and when it is again; members that come and go."""

from __future__ import annotations

import asyncio
import logging

from backends.events.wire import Cleared, Stored
from gateway.addresses import parse_worker_url
from gateway.events import service
from gateway.placement_settings import EventSettings
from gateway.worker_state import Backend
from router.known_blocks import KnownBlocks
from tests.backends.events.event_builders import running_publisher
from tests.gateway.builders import running_worker
from tests.gateway.events.following_gateway import SIZE, build_figures, build_run, following, pages_of, stored, until


async def test_a_silent_stream_is_not_gone_by_until_it_is_heard_again():
    """Answers come and no blocks are told, the replay socket is gone: belief. The stream is back: knowledge again."""
    with running_publisher(replay_endpoint=None) as publisher:
        port = publisher.config.endpoint.rsplit(":", 1)[1]
        settings = EventSettings(endpoint=f"tcp://*:{port}", silent_seconds=0.2)
        async with running_worker(metrics=build_figures()) as worker, following(worker, events=settings) as run:
            number = 1000
            for _ in range(200):
                publisher.publish([Cleared()])  # whatever was missed: nothing is held
                await asyncio.sleep(0.02)
                if run.events() is None:
                    break
            assert run.events() is None
            while run.events() is None:
                assert (await run.ask_ids(build_run(number := number + 1, 4))).status == 200
            assert run.events() == "silent"
            assert run.cached_tokens(build_run(number, 5)) == [4 * SIZE]  # believed
            publisher.publish([stored(9, 2)])
            await until(lambda: run.events() is None)
            assert run.cached_tokens(build_run(9, 5)) == [2 * SIZE]


async def test_a_worker_that_never_shows_what_it_is_sent_is_only_believed():
    """It talks, and of other things: its tokens are not ours. Shown once, it is trusted again."""
    with running_publisher() as publisher:
        pages, settings = pages_of(publisher), EventSettings(silent_seconds=0.05)
        async with running_worker(pages=pages, metrics=build_figures()) as worker:
            async with following(worker, events=settings) as run:
                assert run.events() is None
                number = 1000
                while run.events() is None:
                    publisher.publish([stored(number := number + 1, 1)])
                    assert (await run.ask_ids(build_run(number + 10_000, 4))).status == 200
                    await asyncio.sleep(0.02)
                assert run.events() == "it does not show what was sent to it"
                assert (await run.ask_ids(build_run(9, 2))).status == 200
                publisher.publish([stored(9, 2)])
                await until(lambda: run.events() is None)


async def test_a_restarted_worker_is_asked_anew_and_forgotten_at_once():
    """Its process started at another time, and it publishes elsewhere now."""
    with running_publisher() as before, running_publisher() as after:
        before.publish([stored(7, 3)])
        async with running_worker(pages=pages_of(before), metrics=build_figures()) as worker, following(worker) as run:
            assert run.cached_tokens(build_run(7, 4)) == [3 * SIZE]
            worker.pages, worker.metrics = pages_of(after), build_figures(started=2.0)
            await until(lambda: run.cached_tokens(build_run(7, 4)) == [0])
            after.publish([stored(8, 1)])
            await until(lambda: run.events() is None and run.cached_tokens(build_run(8, 4)) == [SIZE])
            before.publish([stored(7, 3)])
            assert run.cached_tokens(build_run(7, 4)) == [0]


async def test_gaps_bad_batches_and_new_lives_are_counted():
    """What a worker drops, what cannot be read, and a process that counts from 0 again, in the metrics."""
    with running_publisher() as publisher:
        publisher.publish([stored(1, 1)])
        async with (
            running_worker(pages=pages_of(publisher), metrics=build_figures()) as worker,
            following(worker) as run,
        ):
            await until(lambda: run.events() is None)
            publisher._next += 1  # a batch that found no room
            publisher.publish([stored(2, 1)])
            await until(lambda: run.events() == "its beginning was not heard")
            assert run.cached_tokens(build_run(2, 2)) == [SIZE]  # known for sure, though there may be more
            publisher.publish([Stored([5], None, [1], SIZE, None, [None])])
            publisher.publish([Cleared(), stored(3, 1)])
            await until(lambda: run.events() is None)
            publisher._next = 0
            publisher._kept.clear()
            publisher.publish([stored(4, 1)])
            await until(lambda: run.cached_tokens(build_run(4, 2)) == [SIZE])
            run.scrape()
            assert [run.count("event_gaps_total", outcome=outcome) for outcome in ("noticed", "lost")] == [1, 1]
            assert run.count("event_batches_total", outcome="bad") == 1
            assert run.count("event_lives_total") == 1


async def test_a_worker_that_leaves_is_let_go_and_one_that_joins_is_followed():
    """Its streams, its index and its series; the next one under another name is known within moments."""
    with running_publisher() as publisher:
        publisher.publish([stored(7, 3)])
        pages = pages_of(publisher)
        async with running_worker(pages=pages, metrics=build_figures()) as worker, following(worker) as run:
            run.scrape()
            run.gateway.fleet.remove("w1")
            assert run.gateway.serving.router("m").stats().workers == ()
            backend = Backend(name="w9", address=parse_worker_url(worker.url), models=frozenset(["m"]))
            run.gateway.fleet.add(backend)
            await until(lambda: run.events("w9") is None)
            assert run.cached_tokens(build_run(7, 4)) == [3 * SIZE]
            run.scrape()
            registry = run.gateway.metrics.registry
            assert registry.get_sample_value("homing_backend_known_blocks", {"backend": "w1"}) is None
            assert run.count("backend_known_blocks", backend="w9") == 3


async def test_a_joining_workers_finer_blocks_do_not_cost_the_belief_in_others():
    """Something is believed in blocks of 64: a newcomer with blocks of 16 is told in those, four at a time."""
    with running_publisher() as publisher:
        publisher.publish([stored(7, 6)])
        pages = pages_of(publisher)
        async with running_worker() as plain, running_worker(pages=pages, metrics=build_figures()) as telling:
            async with following(plain) as run:
                assert (await run.ask_ids(build_run(9, 8))).status == 200
                backend = Backend(name="w9", address=parse_worker_url(telling.url), models=frozenset(["m"]))
                run.gateway.fleet.add(backend)
                await until(lambda: run.events("w9") is None)
                assert run.gateway.serving.readable() == {"m": 64}
                assert run.cached_tokens(build_run(9, 9)) == [128, 0]
                assert run.cached_tokens(build_run(7, 9)) == [0, 64]


async def test_a_worker_whose_beginning_was_not_heard_is_asked_to_tell_again():
    """Its replay keeps two batches: requests ask for what they reuse, until that is told; then they go as they came."""
    with running_publisher(buffer_steps=2) as publisher:
        publisher.publish([stored(7, 3)])
        for number in range(20, 24):
            publisher.publish([stored(number, 1)])
        pages = pages_of(publisher)
        async with running_worker(pages=pages, metrics=build_figures()) as worker, following(worker) as run:
            assert run.events() == "its beginning was not heard"
            await run.ask_ids(build_run(7, 4))
            assert worker.bodies[-1]["vllm_xargs"] == {"kv_cache_report_mode": "full"}
            publisher.publish([stored(7, 3)])
            await until(lambda: not run.lacks(build_run(7, 3)))
            assert run.cached_tokens(build_run(7, 3)) == [3 * SIZE - 1]
            await run.ask_ids(build_run(7, 3))
            assert "vllm_xargs" not in worker.bodies[-1]
            await run.ask_ids(build_run(7, 4))  # believed of the fourth block, since it was asked for before
            assert "vllm_xargs" in worker.bodies[-1]
            publisher.publish([Cleared()])
            await until(lambda: run.events() is None)
            await run.ask_ids(build_run(8, 4))
            assert "vllm_xargs" not in worker.bodies[-1]


async def test_a_fault_of_our_own_costs_one_workers_knowledge_and_no_request(monkeypatch, caplog):
    """Believed from then on, said without quoting anything, and followed again a little later."""
    monkeypatch.setattr(service, "ASK_AGAIN_SECONDS", 0.5)
    with running_publisher() as publisher:
        pages = pages_of(publisher)
        async with running_worker(pages=pages, metrics=build_figures()) as worker, following(worker) as run:
            with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "homing.events"):
                patch.setattr(KnownBlocks, "apply", fail)
                publisher.publish([stored(7, 1)])
                await until(lambda: run.events() is not None)
                assert (await run.ask_ids(build_run(8, 4))).status == 200
            await until(lambda: run.events() is None and run.cached_tokens(build_run(7, 2)) == [SIZE])
    assert "secret" not in caplog.text
    assert "KeyError while following" in caplog.text


async def test_a_fault_in_looking_does_not_end_the_looking(monkeypatch, caplog):
    """The next look is as good as any: a worker that joins later is followed."""
    with running_publisher() as publisher:
        pages = pages_of(publisher)
        async with running_worker(pages=pages, metrics=build_figures()) as worker, following() as run:
            with monkeypatch.context() as patch, caplog.at_level(logging.ERROR, "homing.events"):
                patch.setattr(service.Events, "_look", fail)
                await until(lambda: "KeyError while following" in caplog.text)
            run.gateway.fleet.add(Backend("w9", parse_worker_url(worker.url), frozenset(["m"])))
            await until(lambda: run.events("w9") is None)


WORDS = "secret"


def fail(*arguments: object) -> None:
    raise KeyError(WORDS)
