"""What a change of the fleet must be like to be taken, and what is said of one that is not."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.errors import GatewayError, InvalidRequest, NoSuchWorker, WorkerExists
from gateway.membership import MOST_AT_ONCE, Membership
from gateway.worker_state import State
from tests.gateway.builders import build_fleet


def build_membership(*names, models=("m",), worker_keys=None):
    """Over a fleet of workers of the model `m` at ports 8000, 8001, …"""
    return Membership(build_fleet(*names), models, worker_keys or {})


def body_of(*entries, **entry) -> bytes:
    return json.dumps(list(entries) or entry).encode()


async def test_a_worker_is_taken_in_with_everything_said_of_it():
    """As if it stood in the configuration; it waits for its first probe."""
    membership = build_membership("w1", worker_keys={"env:KEY": "secret"})
    (worker,) = await membership.add(
        body_of(
            url="http://10.0.0.9:8000/base/v1", name="w9", models=["m"], weight=2, max_in_flight=7, api_key="env:KEY"
        )
    )
    assert (worker.name, worker.state) == ("w9", State.UNKNOWN)
    assert worker.backend.address.url == "http://10.0.0.9:8000/base"
    assert (worker.backend.models, worker.backend.weight, worker.backend.max_in_flight) == ({"m"}, 2, 7)
    assert worker.api_key == "secret"


async def test_only_a_url_is_needed():
    """Its name is its address, its model the only one there is, or any where the configuration says so."""
    (worker,) = await build_membership().add(body_of(url="http://10.0.0.9:8000"))
    assert (worker.name, worker.backend.models) == ("10.0.0.9:8000", {"m"})
    (worker,) = await build_membership(models=("m", "*")).add(body_of(url="http://10.0.0.9:8000"))
    assert worker.backend.models == {"*"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "not JSON"),
        (b"[]", "1 to"),
        (b"7", "Expected `object`"),
        (b"{}", "`url`"),
        (body_of(url="http://h:1", nam="x"), "Did you mean `name`?"),
        (body_of(url="http://h:1", weight=0), ">= 1"),
        (body_of(url="http://h:1", weight=10**9), "<= 100"),
        (body_of(url="http://h:1/\u2603"), "ASCII without spaces"),
        (body_of(url="http://h:1", name="a b"), "matching regex"),
        (body_of(url="ftp://h:1"), "http://"),
        (body_of(url="http://user:pw@h:1"), "no user or password"),
        (body_of(url="http://169.254.169.254"), "link-local"),
        (body_of(url="http://h:1", models=["n"]), "known: mm"),
        (body_of(url="http://h:1", models=[]), "length >= 1"),
        (body_of(url="http://h:1", api_key="file:/etc/passwd"), "reference that the configuration"),
        (body_of({"url": "http://h:1"}, {"url": "http://h:2", "weight": "x"}), "Expected `int`"),
    ],
)
async def test_what_cannot_be_is_refused_with_the_place_and_the_fix(body, says):
    """Nothing is taken in, not even the good half of a list; G: validated like the configuration."""
    membership = build_membership("w1", models=("mm",))
    with pytest.raises(InvalidRequest) as refused:
        await membership.add(body)
    assert says in str(refused.value)
    assert [worker.name for worker in membership.workers] == ["w1"]


async def test_a_mistake_in_a_list_is_told_with_its_index():
    """`param` is the place."""
    with pytest.raises(InvalidRequest) as refused:
        await build_membership().add(body_of({"url": "http://h:1"}, {"url": "http://h:2", "weight": "x"}))
    assert refused.value.param == "[1].weight"


async def test_no_reference_is_read_but_those_of_the_configuration(tmp_path):
    """Else whoever reaches the port could have any file sent to an address of theirs."""
    secret = tmp_path / "salt"
    secret.write_text("CANARY-of-a-secret")
    with pytest.raises(InvalidRequest) as refused:
        await build_membership().add(body_of(url="http://h:1", api_key=f"file:{secret}"))
    assert "CANARY" not in str(refused.value)
    assert refused.value.param == "api_key"


async def test_several_models_and_no_word_on_which_is_an_error_that_names_them():
    """No guess."""
    with pytest.raises(InvalidRequest, match="known: a, b"):
        await build_membership(models=("a", "b")).add(body_of(url="http://h:1"))


@pytest.mark.parametrize(
    ("entries", "says"),
    [
        ([{"url": "http://127.0.0.1:9999", "name": "w1"}], "`w1` is the name of"),
        ([{"url": "http://127.0.0.1:8000", "name": "other"}], "it is `w1` already"),
        ([{"url": "http://h:1"}, {"url": "http://h:1", "name": "x"}], "one worker with two names"),
        ([{"url": "http://h:1", "name": "x"}, {"url": "http://h:2", "name": "x"}], "is the name of"),
    ],
)
async def test_one_worker_has_one_name(entries, says):
    """Against the fleet, and within one change."""
    membership = build_membership("w1")
    with pytest.raises(WorkerExists, match=says):
        await membership.add(body_of(*entries))
    assert len(membership.workers) == 1


async def test_a_change_is_bounded():
    """A list is read, not a flood."""
    with pytest.raises(InvalidRequest, match="1 to"):
        await build_membership().add(body_of(*[{"url": f"http://h:{n + 1}"} for n in range(MOST_AT_ONCE + 1)]))


def test_drain_resume_and_remove():
    """Each acts on the named worker and returns it."""
    membership = build_membership("w1", "w2")
    assert membership.drain("w1").draining
    assert membership.drain("w1").draining, "twice is once"
    assert not membership.resume("w1").draining
    assert membership.remove("w1").name == "w1"
    assert [worker.name for worker in membership.workers] == ["w2"]


@pytest.mark.parametrize("act", ["drain", "resume", "remove"])
def test_a_worker_that_is_not_there_is_told_with_the_nearest_name(act):
    """404, and what was probably meant."""
    membership = build_membership("worker-1")
    with pytest.raises(NoSuchWorker, match="did you mean `worker-1`"):
        getattr(membership, act)("worker-2x")
    assert issubclass(NoSuchWorker, GatewayError)


async def test_every_worker_of_a_list_is_expected_before_any_joins():
    """What joining costs is paid one by one, with others' turns in between."""
    expected, fleet = [], build_fleet("w1")
    membership = Membership(fleet, ("m",), {}, lambda name, weight: expected.append((name, weight, len(fleet.workers))))
    await membership.add(body_of({"url": "http://127.0.0.2:1", "weight": 2}, {"url": "http://127.0.0.2:2"}))
    assert expected == [("127.0.0.2:1", 2, 1), ("127.0.0.2:2", 1, 1)]
    assert len(fleet.workers) == 3


async def test_two_changes_at_once_cannot_both_take_a_name():
    """The second is checked again before it joins, and is told."""
    membership = build_membership("w1")
    both = [membership.add(body_of(url=f"http://127.0.0.2:{port}", name="new")) for port in (1, 2)]
    first, second = await asyncio.gather(*both, return_exceptions=True)
    assert [worker.name for worker in first] == ["new"]
    assert isinstance(second, WorkerExists)
