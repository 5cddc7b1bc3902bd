"""Workers come, go and restart under a running gateway: no request fails, and conversations find their caches again."""

from __future__ import annotations

import json
import threading
import urllib.request
from contextlib import ExitStack, contextmanager

from tests.end_to_end.fleet import HEAD, ask, build_config, cached, chat, client
from tests.end_to_end.processes import free_port, gateway, get, simulated_worker, wait_for
from tests.end_to_end.test_gateway_over_simulated_workers import metric


def change(process, method: str, path: str, **body) -> dict:
    """A change over the admin port."""
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(process.admin + path, data=data, method=method)
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def workers(process) -> dict[str, dict]:
    return {worker["name"]: worker for worker in json.loads(get(f"{process.admin}/workers")[1])["workers"]}


def warmed(process, name: str) -> dict | None:
    """What became of the worker's undertaking, when it has ended."""
    told = workers(process).get(name, {}).get("prewarm")
    return told if told and told["ended"] else None


def build_changing_config(directory, urls, **sections):
    config = build_config(directory, urls)
    return {**config, "listen": {"admin_changes": True}, **sections}


class Conversations:
    """Several, each with its own beginning, that take turns; `home` is who answered last."""

    def __init__(self, url: str, count: int = 24) -> None:
        self._api = client(url)
        self._turns = {number: ["Hello, this is the first thing I say."] for number in range(count)}
        self.home: dict[int, str] = {}

    def next_turns(self) -> dict[int, tuple[str, float]]:
        """One more turn of each: who answered, and the share of the prompt that was cached there."""
        said = {}
        for number, turns in self._turns.items():
            answer, worker = ask(self._api, chat(f"Conversation {number}. {HEAD}", *turns), max_tokens=4)
            turns += [answer.choices[0].message.content, "And then? " * 10]
            self.home[number] = worker
            said[number] = worker, cached(answer) / answer.usage.prompt_tokens
        return said


def mostly_cached(shares: list[float]) -> bool:
    """Three of four hit: a prompt that real requests interrupt three times is given up, and one whose new home is
    busy goes elsewhere. Where nothing was brought none does."""
    return bool(shares) and sum(share > 0.7 for share in shares) >= 0.75 * len(shares)


@contextmanager
def other_load(url: str):
    """A thread that asks something new all the time; yields the list of what failed."""
    failed: list[str] = []
    stop = threading.Event()

    def run() -> None:
        api, number = client(url), 0
        while not stop.is_set():
            number += 1
            try:
                ask(api, chat(f"Load {number}. " + HEAD[:300], "Hi"), max_tokens=2)
            except Exception as error:
                failed.append(repr(error))
            stop.wait(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield failed
    finally:
        stop.set()
        thread.join()


def test_a_worker_that_joins_or_leaves_under_load_costs_no_request_and_no_cache(tmp_path):
    """G-05, G-06: the third worker's first real turns hit what was brought there; so do those of the one drained,
    at their new homes. Nothing goes to a drained worker, and nothing fails."""
    with ExitStack() as stack:
        a, b, c = (stack.enter_context(simulated_worker(tmp_path)) for _ in range(3))
        config = build_changing_config(tmp_path, {"w0": a.url, "w1": b.url})
        process = stack.enter_context(gateway(tmp_path, config))
        talk = Conversations(process.url)
        for _ in range(2):
            talk.next_turns()
        with other_load(process.url) as failed:
            change(process, "POST", "/workers", url=c.url, name="w2")
            told = wait_for(lambda: warmed(process, "w2"), seconds=20, what="the warm-up")
            assert told["why"] == "join"
            assert told["prompts"] > 0
            after_joining = talk.next_turns()
            change(process, "POST", "/workers/w0/drain")
            told = wait_for(lambda: warmed(process, "w0"), seconds=20, what="the move")
            assert told["why"] == "leave"
            moving = [number for number, home in talk.home.items() if home == "w0"]
            after_draining = talk.next_turns()
            change(process, "DELETE", "/workers/w0")
        assert failed == []
        assert set(workers(process)) == {"w1", "w2"}
    at_joiner = [share for worker, share in after_joining.values() if worker == "w2"]
    assert mostly_cached(at_joiner), at_joiner
    assert {worker for worker, _ in after_draining.values()} == {"w1", "w2"}
    moved = [after_draining[number][1] for number in moving]
    assert mostly_cached(moved), moved


def test_a_worker_that_restarts_in_place_is_filled_with_what_it_held(tmp_path):
    """G-18: its conversations stay its own; what was believed of it is forgotten, and brought back."""
    port = free_port()
    with ExitStack() as stack:
        a = stack.enter_context(simulated_worker(tmp_path))
        b = stack.enter_context(simulated_worker(tmp_path, port=port))
        config = build_changing_config(tmp_path, {"w0": a.url, "w1": b.url})
        process = stack.enter_context(gateway(tmp_path, config))
        talk = Conversations(process.url)
        talk.next_turns()
        before = dict(talk.home)
        b.kill()
        wait_for(lambda: workers(process)["w1"]["state"] == "down", seconds=10, what="the gateway to notice")
        stack.enter_context(simulated_worker(tmp_path, port=port))
        told = wait_for(lambda: warmed(process, "w1"), seconds=20, what="the warm-up")
        assert told["why"] == "restart"
        said = talk.next_turns()
    assert talk.home == before
    at_restarted = [share for worker, share in said.values() if worker == "w1"]
    assert mostly_cached(at_restarted), at_restarted


def test_blocks_are_pulled_where_workers_exchange_them(tmp_path):
    """The joiner fetches from who holds them; at most what it tries out first is computed."""
    ports = [free_port(), free_port()]
    token = tmp_path / "token"
    token.write_text("0123456789abcdef0123456789abcdef")
    slow = ["--simulated-prefill-tokens-per-second", "10000"]
    flags = [*slow, "--enable-cache-routes", "--peer-token-file", str(token)]
    urls = [f"http://127.0.0.1:{port}" for port in ports]
    with ExitStack() as stack:
        for number, port in enumerate(ports):
            stack.enter_context(simulated_worker(tmp_path, *flags, "--peer", urls[1 - number], port=port))
        process = stack.enter_context(gateway(tmp_path, build_changing_config(tmp_path, {"w0": urls[0]})))
        talk = Conversations(process.url, 12)
        talk.next_turns()
        change(process, "POST", "/workers", url=urls[1], name="w1")
        told = wait_for(lambda: warmed(process, "w1"), seconds=20, what="the warm-up")
        said = talk.next_turns()
        pulled = metric(process, r'homing_prewarmed_prompts_total\{how="pulled"\}')
    assert pulled >= told["prompts"] - 2 > 0
    assert min(share for worker, share in said.values() if worker == "w1") > 0.7
