"""What happens when a worker is down, dies or comes back, and when the configuration is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from contextlib import ExitStack

import openai
import pytest
import yaml

from tests.end_to_end.fleet import HEAD, MODEL, ask, build_config, chat, client
from tests.end_to_end.processes import ROOT, free_port, gateway, get, serve, simulated_worker, wait_for


def homing(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess:
    """Run the `homing` program to its end."""
    command = [sys.executable, "-m", "gateway", *arguments]
    return subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=60, check=False)


def test_a_worker_that_is_down_at_start_is_named_and_the_rest_serve(tmp_path):
    """Readiness is yes, its detail says who is missing, requests are answered; later the worker joins by itself."""
    port = free_port()
    with simulated_worker(tmp_path) as up, ExitStack() as later:
        config = build_config(tmp_path, {"up": up.url, "gone": f"http://127.0.0.1:{port}"})
        with gateway(tmp_path, config, all_up=False) as process:
            assert "gone" in get(f"{process.admin}/readyz")[1]
            assert {ask(client(process.url), chat(f"{n} {HEAD}", "Hi"))[1] for n in range(6)} == {"up"}
            assert "gone" in process.log.read_text()
            later.enter_context(simulated_worker(tmp_path, port=port))
            wait_for(
                lambda: 'homing_backend_up{backend="gone"} 1.0' in get(f"{process.admin}/metrics")[1],
                seconds=15,
                what="the worker to join",
            )
            assert {ask(client(process.url), chat(f"{n} {HEAD}", "Hi"))[1] for n in range(24)} == {"up", "gone"}


def test_a_worker_that_dies_costs_no_answer(tmp_path):
    """One of two is killed between requests: all forty prompts are answered, by the other one."""
    with simulated_worker(tmp_path) as a, simulated_worker(tmp_path) as b:
        config = build_config(tmp_path, {"a": a.url, "b": b.url})
        config["probes"] = {"interval_seconds": 30}  # so that the request itself finds the dead worker
        with gateway(tmp_path, config) as process:
            api = client(process.url)
            assert {ask(api, chat(f"{n} {HEAD}", "Hi"))[1] for n in range(20)} == {"a", "b"}
            b.kill()
            assert {ask(api, chat(f"{n} {HEAD}", "Hi"))[1] for n in range(40)} == {"a"}
            assert 'homing_upstream_retries_total{reason="' in get(f"{process.admin}/metrics")[1]


def test_a_stream_that_breaks_ends_with_an_error_and_without_done(tmp_path):
    """The only worker dies in mid-stream: the official client raises instead of taking the cut for the end."""
    with simulated_worker(tmp_path, "--simulated-seconds-per-token", "0.02") as only:
        with gateway(tmp_path, build_config(tmp_path, {"only": only.url})) as process:
            stream = client(process.url).chat.completions.create(
                model=MODEL, messages=chat(HEAD, "Talk."), max_tokens=4000, stream=True
            )
            events = iter(stream)
            next(events)
            only.kill()
            with pytest.raises(openai.APIError) as broke:
                list(events)
            assert broke.value.code == "upstream_error"


def test_without_any_worker_the_answer_is_503_at_once(tmp_path):
    """no_backend with a retry hint, not a hang."""
    config = build_config(tmp_path, {"gone": f"http://127.0.0.1:{free_port()}"})
    config["probes"] = {"start_seconds": 0.5}
    with gateway(tmp_path, config, all_up=False) as process, pytest.raises(openai.InternalServerError) as refused:
        ask(client(process.url), chat(HEAD, "Hi"))
    assert refused.value.status_code == 503
    assert refused.value.code == "no_backend"
    assert refused.value.response.headers["retry-after"] == "1"


def test_two_gateways_agree_on_every_home_without_talking(tmp_path):
    """Workers listed in another order, another process: twelve first requests go to the same workers."""
    with simulated_worker(tmp_path) as a, simulated_worker(tmp_path) as b, simulated_worker(tmp_path) as c:
        urls = {"a": a.url, "b": b.url, "c": c.url}
        backwards = dict(reversed(urls.items()))
        with gateway(tmp_path, build_config(tmp_path, urls)) as one:
            with gateway(tmp_path, build_config(tmp_path, backwards)) as two:
                prompts = [chat(f"Prompt {number}. {HEAD}", "Hi") for number in range(12)]
                homes = [ask(client(one.url), prompt)[1] for prompt in prompts]
                assert [ask(client(two.url), prompt)[1] for prompt in prompts] == homes
                assert len(set(homes)) == 3


def test_sigterm_lets_an_open_stream_end(tmp_path):
    """The stream gets its last token and [DONE]; the process then leaves with code 0."""
    with simulated_worker(tmp_path, "--simulated-seconds-per-token", "0.02") as only:
        with gateway(tmp_path, build_config(tmp_path, {"only": only.url})) as process:
            options = {"include_usage": True}
            stream = client(process.url).chat.completions.create(
                model=MODEL, messages=chat(HEAD, "Talk."), max_tokens=60, stream=True, stream_options=options
            )
            events = iter(stream)
            next(events)
            codes: list[int] = []
            stopping = threading.Thread(target=lambda: codes.append(process.stop()))
            stopping.start()
            wait_for(lambda: get(f"{process.admin}/readyz")[0] != 200, seconds=5, what="readiness to say no")
            assert list(events)[-1].usage.completion_tokens == 60
            stopping.join(20)
            assert codes == [0]


def test_a_first_try_needs_a_workers_address_and_nothing_else(tmp_path):
    """`homing serve --worker URL`: no file, no key, the model found by asking."""
    port, admin = free_port(), free_port()
    with simulated_worker(tmp_path) as only:
        options = ["--worker", only.url, "--port", str(port), "--admin-port", str(admin)]
        with serve(tmp_path, options, port, admin) as process:
            api = openai.OpenAI(base_url=f"{process.url}/v1", api_key="unused", max_retries=0)
            assert [model.id for model in api.models.list()] == [MODEL]
            answer = api.chat.completions.create(model=MODEL, messages=chat(HEAD, "Hi"), max_tokens=3)
            assert answer.usage.completion_tokens == 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tenants": {"alpha": {"keys": ["sha256:" + "a" * 64], "limts": {}}}}, ["tenants", "limts", "limits"]),
        ({"listen": {"port": "eighty"}}, ["listen.port"]),
        ({"salt_secrets": {"k1": "env:NO_SUCH_SECRET_HERE"}}, ["salt_secrets", "NO_SUCH_SECRET_HERE"]),
        ({"models": {MODEL: {"backends": {"static": ["http://127.0.0.1:1"]}, "policy": "hommig"}}}, ["homing"]),
    ],
)
def test_a_wrong_configuration_is_refused_with_its_path_and_a_suggestion(tmp_path, change, says):
    """Exit 2, the place and the fix on standard error, no traceback."""
    config = {**build_config(tmp_path, {"w": "http://127.0.0.1:1"}), **change}
    path = tmp_path / "homing.yaml"
    path.write_text(yaml.safe_dump(config))
    done = homing("serve", "--config", str(path))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for part in says[:-1] if says[-1] == "limits" else says:
        assert part in done.stderr


def test_explain_runs_offline_and_keeps_its_place_after_a_bad_line():
    """Two good requests around a bad one: three lines out, exit 1."""
    good = json.dumps({"model": "m", "messages": chat("Current time: 14:05:09\n" + HEAD, "Hi")})
    done = homing("explain", "--jsonl", stdin=f"{good}\n{{bad\n{good}\n")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 1
    assert [("error" in line) for line in lines] == [False, True, False]
    assert lines[0]["key"] == lines[2]["key"] == lines[0]["key_blocks"][0]
    assert lines[0]["folded"][0]["message"] == 0
