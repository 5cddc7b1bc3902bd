"""A gateway that follows its workers' events: whom it asks, whom it believes, in which blocks."""

from __future__ import annotations

import logging
import sys

import pytest

from backends.events.wire import Removed
from gateway.placement_settings import EventSettings
from tests.backends.events.event_builders import running_publisher
from tests.gateway.builders import running_worker
from tests.gateway.events.following_gateway import SIZE, build_figures, build_run, following, pages_of, stored, until


async def test_a_worker_that_publishes_is_known_before_the_first_request():
    """Asked where, caught up, hashed in its own blocks; later events count at once; series say all of it."""
    with running_publisher() as publisher:
        publisher.publish([stored(7, 3)])
        async with (
            running_worker(pages=pages_of(publisher), metrics=build_figures()) as worker,
            following(worker) as run,
        ):
            assert run.events() is None
            assert run.gateway.serving.readable() == {"m": SIZE}
            assert run.cached_tokens(build_run(7, 4)) == [3 * SIZE]
            publisher.publish([stored(8, 2), Removed([7002, 404])])
            await until(lambda: run.cached_tokens(build_run(8, 4)) == [2 * SIZE])
            assert run.cached_tokens(build_run(7, 4)) == [2 * SIZE]
            run.scrape()
            assert run.count("backend_cache_known", backend="w1") == 1
            assert run.count("backend_known_blocks", backend="w1") == 4
            assert 0 < run.count("backend_event_lag_seconds", backend="w1") < 5
            assert run.count("event_batches_total", outcome="replayed") == 1
            assert run.count("event_batches_total", outcome="applied") == 1
            counted = ("stored", "removed", "absent")
            assert [run.count("event_blocks_total", kind=kind) for kind in counted] == [5, 2, 1]


async def test_sglangs_pages_of_one_token_are_known_in_blocks_of_sixteen():
    """Found by /server_info; what does not fill a routing block is not promised."""
    with running_publisher() as publisher:
        publisher.publish([stored(7, 40, size=1)])
        ports = [int(each.rsplit(":", 1)[1]) for each in (publisher.config.endpoint, publisher.config.replay_endpoint)]
        told = {"endpoint_port_base": ports[0], "replay_endpoint_port_base": ports[1], "block_size": 1, "dp_size": 1}
        async with running_worker(pages={"/server_info": {"kv_events": told}}) as worker, following(worker) as run:
            assert run.events() is None
            assert run.cached_tokens(build_run(7, 60, size=1)) == [32]


async def test_workers_of_unlike_blocks_share_a_routing_block():
    """16 and 48: the routing block is 48, and both are known in it."""
    with running_publisher() as small, running_publisher() as large:
        small.publish([stored(7, 7)])
        large.publish([stored(7, 2, size=48)])
        async with (
            running_worker(pages=pages_of(small), metrics=build_figures(16)) as one,
            running_worker(pages=pages_of(large), metrics=build_figures(48)) as other,
            following(one, other) as run,
        ):
            assert (run.events("w1"), run.events("w2")) == (None, None)
            assert run.gateway.serving.readable() == {"m": 48}
            assert run.cached_tokens(build_run(7, 20)) == [96, 96]


async def test_a_block_that_only_the_events_tell_is_taken_up():
    """Nothing said how large the worker's blocks are, and they do not fit: the model is hashed anew in theirs."""
    with running_publisher() as publisher:
        publisher.publish([stored(7, 2, size=48)])
        async with running_worker(pages=pages_of(publisher), metrics="x 1\n") as worker, following(worker) as run:
            await until(lambda: run.gateway.serving.readable() == {"m": 48} and run.events() is None)
            await until(lambda: run.cached_tokens(build_run(7, 20)) == [96])


async def test_a_worker_without_events_is_only_believed():
    """Asked once, both ways, and not again and again."""
    async with running_worker() as worker, following(worker) as run:
        await until(lambda: sum(path == "/metrics" for _, path in worker.asked) > 5)
        assert run.events() == "it publishes no events"
        assert [path for _, path in worker.asked if path in ("/kv_event_sources", "/server_info")] == [
            "/kv_event_sources", "/server_info",
        ]  # fmt: skip
        run.scrape()
        assert run.count("backend_cache_known", backend="w1") == 0


@pytest.mark.parametrize("off", ["off", False])
async def test_events_may_be_switched_off(off):
    """Nobody is asked anything; YAML's bare `off` is a truth value."""
    async with running_worker(pages={"/kv_event_sources": {}}) as worker, following(worker, events=off) as run:
        assert run.events() == "events are off"
        assert not [path for _, path in worker.asked if "events" in path]


async def test_a_model_without_its_tokenizer_is_only_believed():
    """Bytes in place of tokens never make the worker's blocks: its events would show nothing that is asked."""
    with running_publisher() as publisher:
        pages = pages_of(publisher)
        async with running_worker(pages=pages, metrics=build_figures()) as worker:
            async with following(worker, tokenizer=False) as run:
                assert run.events() == "no model of its own tokenizer is loaded"


async def test_a_worker_cannot_send_the_gateway_elsewhere(caplog):
    """Another host at its word: not connected to, said once, and belief."""
    page = {"/kv_event_sources": {"0": {"endpoint": "tcp://169.254.169.254:80"}}}
    with caplog.at_level(logging.WARNING, "homing.events"):
        async with running_worker(pages=page) as worker, following(worker) as run:
            await until(lambda: run.events() and "another host" in run.events())
    assert len([record for record in caplog.records if "cannot be followed" in record.message]) == 1


async def test_without_pyzmq_one_line_says_so(monkeypatch, caplog):
    """Two workers publish and nobody can hear them: belief, and one warning for all."""
    with running_publisher() as publisher:
        pages = pages_of(publisher)
        async with running_worker(pages=pages) as one, running_worker(pages=pages) as other:
            monkeypatch.setitem(sys.modules, "zmq", None)
            with caplog.at_level(logging.WARNING, "homing.events"):
                async with following(one, other) as run:
                    assert {run.events("w1"), run.events("w2")} == {"pyzmq is not installed"}
                    assert (await run.ask_ids(range(1, 40))).status == 200
    assert [record.message for record in caplog.records if "pyzmq" in record.message] == [
        "KV events are not followed: pip install 'homing[events]' brings pyzmq; caches are only believed"
    ]


async def test_endpoints_may_be_configured_and_nobody_is_asked():
    """A wildcard is the worker's own host; the topic chooses."""
    with running_publisher(topic="kv@w1") as publisher:
        publisher.publish([stored(7, 2)])
        ports = [each.rsplit(":", 1)[1] for each in (publisher.config.endpoint, publisher.config.replay_endpoint)]
        settings = EventSettings(endpoint=f"tcp://*:{ports[0]}", replay_endpoint=f"tcp://*:{ports[1]}", topic="kv@")
        async with running_worker(metrics=build_figures()) as worker, following(worker, events=settings) as run:
            assert run.events() is None
            assert run.cached_tokens(build_run(7, 4)) == [2 * SIZE]
            assert not [path for _, path in worker.asked if "events" in path]


@pytest.mark.parametrize("page", ["not json", 7, {"0": {"endpoint": "tcp://*:1", "publisher": 3}},
                                  {"0": {"endpoint": []}, "1": {"endpoint": []}}])  # fmt: skip
async def test_a_page_that_makes_no_sense_leaves_belief(page):
    """And requests are answered all the same."""
    async with running_worker(pages={"/kv_event_sources": page}) as worker, following(worker) as run:
        assert run.events() is not None
        assert (await run.ask_ids(range(1, 40))).status == 200
