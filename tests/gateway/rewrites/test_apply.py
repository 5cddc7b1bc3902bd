"""Rewrites through a whole gateway: the worker reads the rewritten prompt, metrics count it, explain shows it first."""

from __future__ import annotations

import json

from gateway.cli import main
from gateway.explain_requests import Explainer
from gateway.rewrites.apply import INLINE_BYTES, rewrite_call, rewrite_call_soon
from gateway.rewrites.rules import NONE, parse_rewrites
from gateway.wire import Endpoint, parse_call
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import ordinary, scripted_worker

DATED = "You help.\nCurrent date: 2026-11-30\nBe brief."
MOVED = "You help.\nBe brief.\nCurrent date: 2026-11-30"
MESSAGES = [{"role": "system", "content": DATED}, {"role": "user", "content": DATED}]


def build_chat(**more) -> bytes:
    return json.dumps({"model": "m", "messages": MESSAGES, **more}).encode()


def test_without_rewrites_a_call_is_the_very_same():
    """Nothing is parsed twice."""
    call = parse_call(Endpoint.CHAT, build_chat())
    assert rewrite_call(call, NONE) == (call, ())
    assert rewrite_call(call, parse_rewrites(["tool_order"]))[0] is call


def test_the_rewritten_call_is_read_anew():
    """Placement goes by what is forwarded."""
    call, applied = rewrite_call(parse_call(Endpoint.CHAT, build_chat()), parse_rewrites(["clock_last"]))
    assert call.source.messages[0]["content"] == MOVED
    assert call.source.messages[1]["content"] == DATED
    assert {each.rule for each in applied} == {"clock_last"}


async def test_long_code_is_read_off_the_loop_with_the_same_result():
    """In a thread or not."""
    prompt = "# a comment\nx = 1\n\n" * (INLINE_BYTES // 16)
    call = parse_call(Endpoint.COMPLETIONS, json.dumps({"model": "m", "prompt": prompt}).encode())
    rewrites = parse_rewrites(["code_comments:python", "code_blank_lines:python"])
    assert await rewrite_call_soon(call, rewrites) == rewrite_call(call, rewrites)


async def test_a_worker_reads_the_rewritten_prompt_of_a_tenant_that_lets_it():
    """Another tenant's goes as it came; each rule that changed something is counted once a request."""
    async with scripted_worker(ordinary) as worker, running_gateway(worker) as running:
        await running.ask(key="rewritten-key", body=build_chat())
        await running.ask(key="shared-key", body=build_chat())
        assert worker.exchanges[0].asked["messages"] == [{"role": "system", "content": MOVED}, MESSAGES[1]]
        assert worker.exchanges[1].asked["messages"] == MESSAGES
        samples = {
            (sample.labels["tenant"], sample.labels["rule"]): sample.value
            for family in running.gateway.metrics.registry.collect()
            for sample in family.samples
            if sample.name == "homing_rewrites_total"
        }
    assert samples == {("rewritten", "clock_last"): 1.0}


def test_explain_shows_what_would_change_and_where():
    """Rule, field and place; no text. A rule can be tried before it is switched on."""
    told = Explainer(rewrites=parse_rewrites(["clock_last"])).explain(build_chat())
    assert {each["rule"] for each in told["rewritten"]} == {"clock_last"}
    assert told["rewritten"][0] == {"rule": "clock_last", "place": "messages[0].content", "start": 10, "end": 35}
    assert told["text_forwarded_unchanged"] is False
    assert "2026" not in json.dumps(told)
    assert Explainer().explain(build_chat())["rewritten"] == []


def test_the_command_tries_a_rewrite(capsys):
    """`homing explain --rewrite`; an unknown one is answered with the nearest."""
    assert main(["explain", build_chat().decode(), "--rewrite", "clock_last"]) == 0
    assert json.loads(capsys.readouterr().out)["rewritten"]
    assert main(["explain", build_chat().decode(), "--rewrite", "clock_lst"]) == 2
    assert 'did you mean "clock_last"?' in capsys.readouterr().err
