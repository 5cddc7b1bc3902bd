"""`homing explain`: one object for each request, the same as serving would place, and never a word of a prompt."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import main
from gateway.commands import explain as command
from gateway.config import load_config
from gateway.explain import explain_prompt, read_request, text_unchanged
from gateway.explain_requests import Explainer
from router.core import Fold, Prompt, PromptSource
from router.normalise import fold_rules
from router.prompt import PromptBuilder
from router.tokenise import find_smollm2
from tests.gateway.builders import ENVIRON, build_config_data, key_line, write_config_data
from tests.router.text_builders import smollm2

FIELDS = {"key", "key_blocks", "exact_blocks", "folded", "tokens", "rewritten", "text_forwarded_unchanged"}
RULES_TEXT = " ".join(f"Rule {number}: keep answers short and name the source." for number in range(60))
CLOCK = "It is now Monday, 03 November 2025 14:05:09 UTC.\n"


def messages_with(system: str) -> list[dict[str, str]]:
    """A system text and a greeting."""
    return [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}]


def body(**fields: Any) -> bytes:
    """A chat request, unless other fields are given."""
    return json.dumps({"model": "smollm2", "messages": messages_with(RULES_TEXT), **fields}).encode()


def completion(prompt: Any, **fields: Any) -> bytes:
    """A completion request."""
    return json.dumps({"model": "smollm2", "prompt": prompt, **fields}).encode()


def feed(monkeypatch: pytest.MonkeyPatch, lines: bytes) -> None:
    """Put `lines` on standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines)))


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    """As without a configuration."""
    return Explainer()


def test_a_request_is_told_in_hex_and_numbers(explainer: Explainer) -> None:
    """All fields, and the counts fit each other."""
    told = explainer.explain(body())
    assert set(told) == FIELDS
    assert told["key"] == told["key_blocks"][0]
    assert len(told["exact_blocks"]) == told["tokens"] // 64
    assert all(len(bytes.fromhex(block)) == 16 for block in told["key_blocks"])
    assert told["text_forwarded_unchanged"] is True
    assert told["folded"] == []


def test_folds_are_told_with_their_place_in_the_original(explainer: Explainer) -> None:
    """Code points of the message's own string; the text itself is not shown."""
    system = "🙂\n" + CLOCK + RULES_TEXT
    told = explainer.explain(body(messages=messages_with(system)))
    assert told["folded"]
    for fold in told["folded"]:
        assert set(fold) == {"rule", "message", "start", "end"}
        assert fold["message"] == 0
        assert 0 <= fold["start"] < fold["end"] <= len(system)
    assert any("14:05" in system[fold["start"] : fold["end"]] for fold in told["folded"])
    assert "November" not in json.dumps(told)
    assert told["text_forwarded_unchanged"] is True


def test_a_fold_in_a_part_names_the_part() -> None:
    """And one in a plain string does not."""
    folds = (Fold("clock", 0, 1, 2), Fold("clock", 1, 3, 4, 2))
    told = explain_prompt(Prompt(3, 64, [], [b"k" * 16], folds))
    assert told["folded"] == [
        {"rule": "clock", "message": 0, "start": 1, "end": 2},
        {"rule": "clock", "message": 1, "start": 3, "end": 4, "part": 2},
    ]


def test_a_clock_moves_the_blocks_and_not_the_key(explainer: Explainer) -> None:
    """What the command is for."""
    told = [
        explainer.explain(body(messages=messages_with(clock + RULES_TEXT)))
        for clock in (CLOCK, CLOCK.replace("14:05:09", "14:07:41"))
    ]
    assert told[0]["key_blocks"] == told[1]["key_blocks"]
    assert told[0]["exact_blocks"] != told[1]["exact_blocks"]


def test_a_cache_salt_of_the_request_narrows(explainer: Explainer) -> None:
    """Two salts share nothing; neither does another model's name."""
    told = [explainer.explain(body(**more)) for more in ({}, {"cache_salt": "a"}, {"cache_salt": "b"}, {"model": "x"})]
    assert len({each["key"] for each in told}) == 4
    assert len({each["tokens"] for each in told}) == 1


def test_sampling_values_and_the_order_of_fields_make_no_difference(explainer: Explainer) -> None:
    """The body's bytes are not the key."""
    plain = explainer.explain(body())
    other = {"temperature": 0.3, "stream": True, "prompt_cache_key": "k", **json.loads(body())}
    assert explainer.explain(json.dumps(other, indent=3).encode()) == plain


def test_every_kind_of_completion_prompt_is_explained(explainer: Explainer) -> None:
    """Text, token ids, and batches of them by their first item."""
    text = explainer.explain(completion("1, 2, 3"))
    ids = explainer.explain(completion([1, 2, 3]))
    assert ids["tokens"] == 3
    assert text["key"] != ids["key"]
    assert explainer.explain(completion(["1, 2, 3", "else"])) == text
    assert explainer.explain(completion([[1, 2, 3], [4]])) == ids


@pytest.mark.parametrize(
    ("request_body", "says"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"[]", "JSON object"),
        (b'{"model": "m"}', "none of `messages`, `prompt` and `input`"),
        (b'{"messages": [{"role": "user", "content": "my secret"}]}', "`model` is missing"),
        (b'{"model": "m", "messages": "my secret"}', "`messages` must be"),
        (b'{"model": "m", "messages": [{"role": "user", "content": {"secret": 1}}]}', "content"),
        (b'{"model": "m", "prompt": [-5]}', "token ids"),
        (b'{"model": "m", "prompt": "x", "prompt": "y"}', "more than once"),
        (b'\xff{"model": "secret"}', ""),
    ],
)
def test_a_request_that_is_none_is_an_error_without_its_text(
    explainer: Explainer, request_body: bytes, says: str
) -> None:
    """In the words that the API would answer."""
    told = explainer.explain(request_body)
    assert set(told) == {"error"}
    assert says in told["error"]
    assert "secret" not in told["error"]


def test_an_unforeseen_fault_is_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its type only: its words may quote the prompt."""
    explainer = Explainer()

    def fail(*_: object) -> None:
        raise RuntimeError("my secret")

    monkeypatch.setattr(explainer, "_prompts", fail)
    assert explainer.explain(body()) == {"error": "this request cannot be explained (RuntimeError)"}


def test_unchanged_means_the_same_bytes_where_a_model_reads() -> None:
    """A salt may be added; a message may not be touched."""
    received = body(cache_salt="x")
    assert text_unchanged(received, received)
    assert text_unchanged(received, body(cache_salt="y", model="z"))
    assert not text_unchanged(received, received.replace(b'"Hi"', b'"Ho"'))
    assert not text_unchanged(completion("a"), completion("b"))
    assert not text_unchanged(body(tools=[{"a": 1}]), body())


def test_the_endpoint_is_known_by_the_fields() -> None:
    """`prompt` is a completion, `messages` a chat."""
    assert read_request(body()).source.messages is not None
    assert read_request(completion("x")).source.prompt == "x"


def test_the_same_words_have_one_key_by_every_api(explainer: Explainer) -> None:
    """Case D-05: chat, responses and messages, told apart by their fields."""
    chat = explainer.explain(body())
    responses = json.dumps({"model": "smollm2", "instructions": RULES_TEXT, "input": "Hi"}).encode()
    user = [{"role": "user", "content": "Hi"}]
    messages = json.dumps({"model": "smollm2", "system": RULES_TEXT, "messages": user, "max_tokens": 1}).encode()
    for other in (responses, messages):
        told = explainer.explain(other)
        assert (told["exact_blocks"], told["key_blocks"]) == (chat["exact_blocks"], chat["key_blocks"])
        assert told["text_forwarded_unchanged"] is True


def run(*words: str) -> int:
    """The command as the console script runs it."""
    return main(["explain", *words])


def test_one_request_may_be_a_file_standard_input_or_the_json_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """All three give the same line."""
    path = tmp_path / "request.json"
    path.write_bytes(body())
    feed(monkeypatch, body())
    codes = [run(word) for word in (str(path), "-", body().decode())]
    lines = capsys.readouterr().out.splitlines()
    assert codes == [0, 0, 0]
    assert len(lines) == 3
    assert len(set(lines)) == 1
    assert set(json.loads(lines[0])) == FIELDS


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "REQUEST or --jsonl"),
        (["--jsonl", "-"], 2, "REQUEST or --jsonl"),
        (["/nowhere/request.json"], 2, "/nowhere/request.json: No such file"),
        (["{}"], 1, "none of"),
        (["--tenant", "acme", "-"], 2, "--config"),
        (["--config", "/nowhere.yaml", "-"], 2, "/nowhere.yaml"),
    ],
)
def test_misuse_and_bad_requests_are_told_on_standard_error(
    words: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the exit code of the kind, and never a traceback."""
    assert run(*words) == code
    told = capsys.readouterr()
    assert says in told.err
    assert "Traceback" not in told.err
    assert told.out == ""


def test_a_bad_line_gives_an_error_in_its_place_and_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines after it are explained all the same."""
    feed(monkeypatch, b"\n".join([body(), b"nonsense", b"", completion("x"), body(cache_salt="s")]) + b"\n")
    assert run("--jsonl") == 1
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert ["error" in each for each in told] == [False, True, True, False, False]


def test_many_lines_keep_their_order(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """However long each of them takes."""
    sizes = [number * 37 % 100 + 1 for number in range(200)]
    feed(monkeypatch, b"\n".join(completion([7] * size) for size in sizes))
    assert run("--jsonl") == 0
    assert [json.loads(line)["tokens"] for line in capsys.readouterr().out.splitlines()] == sizes


def test_nothing_to_explain_is_no_problem(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An empty stream of lines."""
    feed(monkeypatch, b"")
    assert run("--jsonl") == 0
    assert capsys.readouterr().out == ""


def test_a_reader_that_leaves_ends_the_command() -> None:
    """`homing explain --jsonl | head -1`, with more lines than are read ahead."""
    code = "import sys; from gateway.cli import main; sys.exit(main(['explain', '--jsonl']))"
    lines = completion([1]) + b"\n"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdin
        assert child.stdout
        assert child.stderr
        child.stdin.write(lines)
        child.stdin.flush()
        assert b"exact_blocks" in child.stdout.readline(), "a line is answered before the next one is read"
        child.stdout.close()
        try:
            child.stdin.write(lines * 3000)
            child.stdin.close()
        except BrokenPipeError:
            pass
        assert child.wait(60) == 1
        assert b"Traceback" not in child.stderr.read()


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two models, of which one has a tokeniser, and two tenants, of which one folds nothing."""
    monkeypatch.setenv("SALT", ENVIRON["SALT"])
    static = build_config_data()["models"]["m"]["backends"]
    return write_config_data(
        tmp_path,
        models={
            "m": {
                "backends": static,
                "tokenizer": str(find_smollm2()),
                "adapters": ["lora"],
                "worker_block_tokens": 100,
            },
            "bare": {"backends": static},
        },
        tenants={
            "acme": {"keys": [key_line("acme-key")], "models": ["m", "lora"]},
            "verbatim": {"keys": [key_line("other-key")], "fold": "none"},
        },
    )


def explained(config: Path, tenant: str, request: bytes, capsys: pytest.CaptureFixture[str]) -> Any:
    """What the command says with a configuration."""
    assert run("--config", str(config), "--tenant", tenant, request.decode()) == 0
    return json.loads(capsys.readouterr().out)


def test_tenants_of_a_configuration_have_keys_of_their_own(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Salted by their own secret; a request's own salt narrows further."""
    requests = [("acme", body(model="m")), ("acme", body(model="m", cache_salt="x")), ("verbatim", body(model="m"))]
    told = [explained(config, tenant, request, capsys) for tenant, request in requests]
    assert len({each["key"] for each in told}) == 3
    assert told[0] == explained(config, "acme", body(model="m"), capsys)
    assert told[0]["key"] != Explainer().explain(body(model="m"))["key"]


def test_the_configured_block_and_tokeniser_are_used(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Blocks of the worker's size, and the adapter reads as its base model does."""
    base, adapter = (explained(config, "acme", body(model=model), capsys) for model in ("m", "lora"))
    assert base["tokens"] == adapter["tokens"] == Explainer().explain(body())["tokens"]
    assert len(base["exact_blocks"]) == base["tokens"] // 100
    assert base["key"] != adapter["key"]


def test_an_adapter_is_seeded_as_serving_seeds_it(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By its base model and its own name: the offline answer is the gateway's."""
    tenant = command._tenant(load_config(config, ENVIRON), "acme")
    salt = tenant.salt("lora")
    builder = PromptBuilder(smollm2(), 100)
    source = PromptSource(messages=messages_with(RULES_TEXT))
    prompt = builder.build(source, salt=salt, model="m", adapter="lora", rules=fold_rules("default"))
    told = explained(config, "acme", body(model="lora"), capsys)
    assert told == {**explain_prompt(prompt), "rewritten": [], "text_forwarded_unchanged": True}


def test_a_tokeniser_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The configuration is wrong, not the request."""
    static = build_config_data()["models"]["m"]["backends"]
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text("{}")
    models = {"m": {"backends": static, "tokenizer": str(tokenizer)}}
    path = write_config_data(tmp_path, models=models)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SALT", ENVIRON["SALT"])
        assert run("--config", str(path), body(model="m").decode()) == 1
    assert "tokenizer.json" in capsys.readouterr().err


def test_a_tenants_own_fold_rules_apply(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One of them folds nothing."""
    request = body(model="m", messages=[{"role": "system", "content": CLOCK + RULES_TEXT}])
    assert explained(config, "acme", request, capsys)["folded"]
    assert not explained(config, "verbatim", request, capsys)["folded"]


def test_a_model_without_a_tokeniser_is_explained_in_bytes(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Estimated at four bytes a token."""
    told = explained(config, "verbatim", completion("x" * 4000, model="bare"), capsys)
    assert told["tokens"] == 1000


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "--tenant acme|verbatim"),
        (["--tenant", "nobody"], 2, "no tenant is named 'nobody'"),
        (["--tenant", "acme"], 1, "may not use the model"),
        (["--tenant", "verbatim"], 1, "no such model"),
    ],
)
def test_tenants_and_models_that_are_not_there_are_named(
    config: Path, words: list[str], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what would be right."""
    assert run("--config", str(config), *words, body(model="other").decode()) == code
    assert says in capsys.readouterr().err


def test_a_thousand_requests_of_8k_tokens_take_less_than_ten_seconds_of_two_cores(explainer: Explainer) -> None:
    """By the CPU time of a few dozen of them, all distinct, with a clock to fold in each."""
    explainer.explain(body())
    requests = [_long_request(number) for number in range(20)]
    started = time.process_time()
    told = [explainer.explain(request) for request in requests]
    seconds_each = (time.process_time() - started) / len(requests)
    assert all(7500 < each["tokens"] < 9500 for each in told)
    assert len({each["key_blocks"][-1] for each in told}) == len(requests)
    assert seconds_each * 1000 < 20, f"{seconds_each * 1000:.1f} ms each"


def _long_request(number: int) -> bytes:
    def words(count: int, salt: int) -> str:
        return " ".join(RULES_TEXT.split()[(place * 7919 + number * 31 + salt) % 500] for place in range(count))

    clock = CLOCK.replace("14:05:09", f"14:{number:02d}:09")
    turns = [{"role": "user" if turn % 2 == 0 else "assistant", "content": words(1200, turn)} for turn in range(5)]
    return body(messages=[{"role": "system", "content": clock + words(600, 99)}, *turns])


def test_the_command_is_in_the_table_and_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`homing explain --help`."""
    assert run("--help") == 0
    assert "--jsonl" in capsys.readouterr().out
    assert command.READ_AHEAD_LINES > 0
