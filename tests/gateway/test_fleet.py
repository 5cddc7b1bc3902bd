"""The fleet: who may be given a request, how many each has, and who hears of changes."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.block_sizes import routing_block_tokens
from gateway.fleet import ChangeKind, Fleet, UnknownWorker
from gateway.worker_metrics import WorkerFigures
from gateway.worker_state import Outcome, ProbeResult, ServingFacts, State
from tests.gateway.builders import build_backend, build_cards, build_fleet, build_healthy

REFUSED = ProbeResult(trouble="no connection", refused=True)
SILENT = ProbeResult(trouble="no answer within 2 s", silent=True)


def watch(fleet):
    """Every change from now on, as (kind, worker)."""
    heard = []
    fleet.on_change(lambda change: heard.append((change.kind, change.worker.name)))
    return heard


def ready_names(fleet, model="m"):
    return [view.name for view in fleet.view(model).workers if view.admissible]


def test_a_worker_gets_nothing_before_its_first_good_probe():
    """F-06: no prompt is sent to something that has not answered as a worker does."""
    fleet = build_fleet("w1", ready=False)
    assert fleet.worker("w1").state is State.UNKNOWN
    assert ready_names(fleet) == []
    fleet.probed("w1", build_healthy(), now=0.0)
    assert ready_names(fleet) == ["w1"]


def test_a_worker_down_at_start_leaves_the_rest_serving():
    """And says what is wrong with it."""
    fleet = build_fleet("w1", "w2", ready=False)
    fleet.probed("w1", build_healthy(), now=0.0)
    fleet.probed("w2", REFUSED, now=0.0)
    assert ready_names(fleet) == ["w1"]
    assert fleet.worker("w2").trouble == "no connection"


async def test_a_lease_counts_while_it_is_held():
    """One more in flight inside, one less outside, and placement sees it."""
    fleet = build_fleet("w1")
    async with fleet.lease("w1") as lease:
        assert lease.worker.name == "w1"
        assert fleet.view("m").workers[0].in_flight == 1
    assert fleet.view("m").workers[0].in_flight == 0


async def test_a_lease_is_given_back_when_the_request_is_cancelled():
    """A caller that leaves gives its slot back."""
    fleet = build_fleet("w1")
    inside = asyncio.Event()

    async def hold():
        async with fleet.lease("w1"):
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert fleet.worker("w1").in_flight == 0


async def test_a_lease_outlives_its_worker():
    """The worker leaves the fleet, the request ends in its own time, the count stays right."""
    fleet = build_fleet("w1")
    worker = fleet.worker("w1")
    async with fleet.lease("w1"):
        fleet.remove("w1")
        assert worker.in_flight == 1
    assert worker.in_flight == 0
    with pytest.raises(UnknownWorker):
        fleet.lease("w1")


async def test_a_lease_is_taken_once():
    """Twice would count twice and give back once."""
    lease = build_fleet("w1").lease("w1")
    async with lease:
        with pytest.raises(RuntimeError, match="already taken"):
            await lease.__aenter__()
    assert lease.worker.in_flight == 0


steps = st.lists(
    st.tuples(st.sampled_from(["take", "give", "break", "probe", "refuse", "leave", "join"]), st.integers(0, 2)),
    max_size=60,
)


@settings(deadline=None)
@given(steps)
def test_no_order_of_events_leaks_a_lease(order):
    """Whatever happens to workers meanwhile, counts are what is held, never negative, and zero at the end."""
    asyncio.run(live_through(order))


async def live_through(order):
    fleet, held = build_fleet("w0", "w1", "w2"), []
    for what, number in order:
        await one_step(fleet, held, what, f"w{number}")
        fleet.check_integrity()
        for worker in fleet.workers:
            assert worker.in_flight == sum(lease.worker is worker for lease in held)
    while held:
        await held.pop().__aexit__(None, None, None)
    assert all(worker.in_flight == 0 for worker in fleet.workers)


def report_if_there(fleet, name, outcome):
    """Only of live workers is anything known by name."""
    for worker in fleet.workers:
        if worker.name == name:
            fleet.report(worker, outcome)


async def one_step(fleet, held, what, name):
    known = name in [worker.name for worker in fleet.workers]
    if what == "take" and known:
        held.append(await fleet.lease(name).__aenter__())
    elif what == "give" and held:
        await held.pop(0).__aexit__(None, None, None)
    elif what == "break" and held:
        error = ConnectionResetError()
        await held.pop().__aexit__(type(error), error, None)
        report_if_there(fleet, name, Outcome.BROKE)
    elif what == "probe":
        fleet.probed(name, build_healthy(), now=1.0)
    elif what == "refuse":
        report_if_there(fleet, name, Outcome.REFUSED)
    elif what == "leave" and known:
        fleet.remove(name)
    elif what == "join" and not known:
        fleet.add(build_backend(name))


def test_a_refused_connection_takes_a_worker_out_until_its_next_good_probe():
    """The data plane knows first."""
    fleet = build_fleet("w1", "w2")
    heard = watch(fleet)
    fleet.report(fleet.worker("w1"), Outcome.REFUSED)
    assert ready_names(fleet) == ["w2"]
    fleet.probed("w1", build_healthy(), now=1.0)
    assert ready_names(fleet) == ["w1", "w2"]
    assert [kind for kind, _ in heard] == [ChangeKind.DOWN, ChangeKind.RESTARTED, ChangeKind.UP]


def test_three_failures_in_a_row_take_a_worker_out():
    """One broken connection is bad luck; the only worker there is is asked on all the same."""
    fleet = build_fleet("w1", "w2")
    for outcome in (Outcome.BROKE, Outcome.SILENT):
        fleet.report(fleet.worker("w1"), outcome)
    assert ready_names(fleet) == ["w1", "w2"]
    fleet.report(fleet.worker("w1"), Outcome.BROKE)
    assert ready_names(fleet) == ["w2"]
    assert fleet.worker("w1").state is State.EJECTED


def test_an_answer_forgives_earlier_failures():
    """Three in a row, not three in a day."""
    fleet = build_fleet("w1")
    for outcome in (Outcome.BROKE, Outcome.BROKE, Outcome.ANSWERED, Outcome.BROKE, Outcome.BROKE):
        fleet.report(fleet.worker("w1"), outcome)
    assert ready_names(fleet) == ["w1"]


def test_a_report_about_a_worker_that_has_gone_blames_nobody():
    """Requests outlive workers: who took its name and place is another (a restart in place, G-18)."""
    fleet = build_fleet("w1")
    before = fleet.worker("w1")
    fleet.remove("w1")
    fleet.report(before, Outcome.REFUSED)
    fleet.add(build_backend("w1"))
    fleet.probed("w1", build_healthy(), now=1.0)
    for outcome in (Outcome.REFUSED, Outcome.BROKE, Outcome.BROKE, Outcome.BROKE):
        fleet.report(before, outcome)
    assert ready_names(fleet) == ["w1"]
    assert fleet.worker("w1").standing.failures_in_a_row == 0


def test_a_busy_worker_may_miss_two_probes():
    """A worker at full load answers late; only the third silence counts."""
    fleet = build_fleet("w1")
    for _ in range(2):
        fleet.probed("w1", SILENT, now=1.0)
    assert ready_names(fleet) == ["w1"]
    fleet.probed("w1", SILENT, now=1.0)
    assert ready_names(fleet) == []


def test_a_silent_worker_that_was_never_ready_is_down_at_once():
    """There is nothing to be patient with."""
    fleet = build_fleet("w1", ready=False)
    fleet.probed("w1", SILENT, now=1.0)
    assert fleet.worker("w1").state is State.DOWN


def test_a_draining_worker_gets_nothing_new_and_stays_on_the_ring():
    """It is in the picture, marked."""
    fleet = build_fleet("w1", "w2")
    heard = watch(fleet)
    fleet.drain("w1")
    fleet.drain("w1")
    assert ready_names(fleet) == ["w2"]
    assert [view.name for view in fleet.view("m").workers] == ["w1", "w2"]
    assert heard == [(ChangeKind.DRAINING, "w1")]


def test_a_restart_is_heard():
    """Another start time behind the same address: what it held is gone."""
    fleet = build_fleet("w1", ready=False)
    fleet.probed("w1", build_healthy(figures=WorkerFigures(start_seconds=1.0)), now=0.0)
    heard = watch(fleet)
    fleet.probed("w1", build_healthy(figures=WorkerFigures(start_seconds=1.0)), now=1.0)
    assert heard == []
    fleet.probed("w1", build_healthy(figures=WorkerFigures(start_seconds=2.0)), now=2.0)
    assert heard == [(ChangeKind.RESTARTED, "w1")]


def test_a_worker_that_came_back_as_the_same_process_keeps_its_cache():
    """A blip of the network is no restart, when the start time vouches for it."""
    figures = WorkerFigures(start_seconds=1.0)
    fleet = build_fleet("w1", ready=False)
    fleet.probed("w1", build_healthy(figures=figures), now=0.0)
    heard = watch(fleet)
    fleet.report(fleet.worker("w1"), Outcome.REFUSED)
    fleet.probed("w1", REFUSED, now=1.0)
    fleet.probed("w1", build_healthy(figures=figures), now=2.0)
    assert [kind for kind, _ in heard] == [ChangeKind.DOWN, ChangeKind.UP]


def test_the_first_start_is_no_restart():
    """A worker that comes up after the gateway has nothing to lose."""
    fleet = build_fleet("w1", ready=False)
    heard = watch(fleet)
    fleet.probed("w1", REFUSED, now=0.0)
    fleet.probed("w1", build_healthy(), now=1.0)
    assert [kind for kind, _ in heard] == [ChangeKind.DOWN, ChangeKind.MODELS, ChangeKind.UP]


def test_a_sleeping_worker_is_out_and_has_forgotten():
    """vLLM's sleep mode throws the cache away."""
    fleet = build_fleet("w1")
    heard = watch(fleet)
    for now in (1.0, 2.0):
        fleet.probed("w1", build_healthy(figures=WorkerFigures(asleep=True)), now=now)
    assert ready_names(fleet) == []
    assert fleet.worker("w1").trouble == "asleep"
    assert [kind for kind, _ in heard] == [ChangeKind.RESTARTED, ChangeKind.DOWN]


def test_a_worker_that_serves_something_else_says_so():
    """A wrong --served-model-name is found in the log, not by 404s."""
    fleet = build_fleet("w1", ready=False)
    fleet.probed("w1", build_healthy("other-model"), now=0.0)
    assert fleet.worker("w1").trouble == "serves other-model, but is configured for m"
    assert ready_names(fleet) == []


def test_models_are_merged_over_workers():
    """D-07: each once, stable, least length; also while one is down."""
    fleet = build_fleet("w1", "w2", ready=False)
    fleet.probed("w2", ProbeResult(cards=build_cards("m", max_model_len=2048, lora_b="m")), now=0.0)
    fleet.probed("w1", ProbeResult(cards=build_cards("m", max_model_len=4096, lora_a="m")), now=0.0)
    fleet.report(fleet.worker("w2"), Outcome.REFUSED)
    assert [card.id for card in fleet.models()] == ["m", "lora-a", "lora-b"]
    assert fleet.card("m").max_model_len == 2048


def test_an_adapter_goes_only_where_it_is_loaded():
    """D-09: lora-a at w1 only; its base is known; unloaded, it is unknown again."""
    fleet = build_fleet("w1", "w2")
    fleet.probed("w1", build_healthy("m", lora_a="m"), now=1.0)
    assert ready_names(fleet, "lora-a") == ["w1"]
    assert fleet.base_model("lora-a") == "m"
    assert fleet.knows("lora-a")
    fleet.probed("w1", build_healthy("m"), now=2.0)
    assert not fleet.knows("lora-a")
    assert ready_names(fleet, "m") == ["w1", "w2"]


def test_what_a_worker_lists_beyond_its_configuration_is_not_offered():
    """A model nobody configured is not reachable through the gateway."""
    fleet = build_fleet("w1")
    fleet.probed("w1", build_healthy("m", "private"), now=1.0)
    assert [card.id for card in fleet.models()] == ["m"]
    assert fleet.view("private").workers == ()
    assert not fleet.knows("private")


def test_any_model_takes_what_the_workers_list():
    """`homing serve --worker URL` knows no names."""
    fleet = Fleet({"*": ServingFacts()})
    fleet.add(build_backend("w1", models=["*"]))
    fleet.probed("w1", build_healthy("smollm2", lora_a="smollm2"), now=0.0)
    assert [card.id for card in fleet.models()] == ["smollm2", "lora-a"]
    assert ready_names(fleet, "smollm2") == ["w1"]
    assert not fleet.knows("*")
    assert not fleet.knows("other")


def test_nothing_is_unknown_before_the_lists_are_there():
    """Under `*`, a worker that is still starting may serve any name: that is a 503, not a 404."""
    fleet = Fleet({"*": ServingFacts()})
    fleet.add(build_backend("w1", models=["*"]))
    assert fleet.knows("smollm2")
    fleet.probed("w1", build_healthy("other"), now=0.0)
    assert not fleet.knows("smollm2")


def test_a_configured_model_is_known_before_anyone_serves_it():
    """All its workers down is a 503, not a 404."""
    fleet = build_fleet("w1", ready=False)
    assert fleet.knows("m")
    assert not fleet.knows("n")


def test_the_picture_carries_what_placement_needs():
    """Bounds, rates, cache size in routing blocks, the worker's own queue."""
    facts = {"m": ServingFacts(max_in_flight=8, prefill_tokens_per_second=9000.0, prefill_fixed_seconds=0.02)}
    fleet = Fleet(facts)
    fleet.add(build_backend("w1", weight=2, max_in_flight=4))
    figures = WorkerFigures(block_tokens=16, cache_blocks=400, waiting=3.0)
    fleet.probed("w1", build_healthy(figures=figures), now=0.0)
    (view,) = fleet.view("m").workers
    assert (view.max_in_flight, view.weight, view.waiting, view.cache_blocks) == (4, 2, 3, 100)
    assert (view.prefill_tokens_per_second, view.prefill_fixed_seconds) == (9000.0, 0.02)


def test_the_picture_is_drawn_once_until_something_changes():
    """Eight workers and thirty microseconds: no redrawing for nothing."""
    fleet = build_fleet("w1", "w2")
    before = fleet.view("m").workers
    assert all(old is new for old, new in zip(before, fleet.view("m").workers, strict=True))
    fleet.report(fleet.worker("w1"), Outcome.REFUSED)
    assert not fleet.view("m").workers[0].ready


@pytest.mark.parametrize(
    ("block", "expected"), [(None, 64), (16, 64), (32, 64), (64, 64), (128, 128), (48, 96), (1, 64)]
)
def test_a_routing_block_is_a_multiple_of_the_workers(block, expected):
    """The least one of at least 64 tokens."""
    assert routing_block_tokens(block) == expected


def test_the_block_comes_from_configuration_else_from_the_worker():
    """The worker's word counts where nothing is configured."""
    fleet = build_fleet("w1")
    assert fleet.block_tokens("m") == 64
    fleet.probed("w1", build_healthy(figures=WorkerFigures(block_tokens=128)), now=1.0)
    assert fleet.block_tokens("m") == 128
    configured = Fleet({"m": ServingFacts(worker_block_tokens=32)})
    assert configured.block_tokens("m") == 64


def test_a_small_change_of_a_measured_block_is_let_go():
    """Routers start to learn a cache's size anew at each change."""
    fleet = build_fleet("w1")
    fleet.probed("w1", build_healthy(figures=WorkerFigures(block_tokens=16, cache_blocks=1000)), now=1.0)
    seen = []
    for block_tokens in (64, 66, 69, 80, 250):
        fleet.measured("m", block_tokens)
        seen.append(fleet.view("m").workers[0].cache_blocks)
    assert seen == [250, 250, 250, 200, 64]
    assert fleet.block_tokens("m") == 64


def test_the_hit_ratio_is_of_the_last_minute():
    """Δhits/Δqueries over a window, not since the worker's birth."""
    fleet = build_fleet("w1")
    for now, queries, hits in ((0.0, 0.0, 0.0), (30.0, 1000.0, 0.0), (61.0, 1100.0, 0.0), (91.0, 1200.0, 100.0)):
        figures = WorkerFigures(start_seconds=1.0, cache_queries=queries, cache_hits=hits)
        fleet.probed("w1", build_healthy(figures=figures), now=now)
    assert fleet.worker("w1").hit_ratio == pytest.approx(100 / 200)


def test_names_are_unique():
    """Two workers of one name would share a count."""
    with pytest.raises(ValueError, match="already"):
        build_fleet("w1").add(build_backend("w1"))


def test_integrity_names_what_is_wrong():
    """A corrupted count does not pass."""
    fleet = build_fleet("w1")
    fleet.check_integrity()
    fleet.worker("w1").in_flight = -1
    with pytest.raises(AssertionError, match="w1 has -1 requests in flight"):
        fleet.check_integrity()
