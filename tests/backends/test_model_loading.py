"""What a `--model` value may be: a GGUF file, a Hugging Face folder, the bundled model; and what is said of others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from backends.arguments import parse_arguments
from backends.kernels.reference import ReferenceKernels
from backends.loading import StartError, load
from backends.model.config import ModelRefusedError
from backends.model_loading import find_model, load_model, load_weights
from backends.prompt_ids import unpack
from router.tokenise import TokeniserError, load_tokeniser
from tests.backends.folder_builders import build_tensors, write_folder, write_text_files
from tests.backends.tensor_builders import TINY, build_sequence, generate

VOCABULARY = 260


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A Mistral whose tokens see 64 tokens back, with text files."""
    settings = {"architectures": ["MistralForCausalLM"], "sliding_window": 64, "vocab_size": VOCABULARY}
    write_text_files(tmp_path, eos_token_id=[256, 258], temperature=0.6)
    return write_folder(tmp_path, build_tensors(vocab_size=VOCABULARY), **settings)


def test_a_folder_is_loaded_with_its_text_files(folder: Path):
    """Tokeniser, chat template, the ends of an answer from generation_config.json; and it runs."""
    runner, text = load_model(str(folder), dtype="float32", kernels=ReferenceKernels())
    assert (text.tokeniser.vocabulary_size, text.eos, text.eos_ids) == (257, "<|end|>", (256, 258))
    assert text.template.render([{"role": "user", "content": "hi"}]) == "[hi]"
    assert (runner.vocab_size, runner.context_tokens, runner.window_tokens) == (VOCABULARY, TINY.context_tokens, 64)
    runner.allocate(8, 4)
    assert len(generate(runner, build_sequence(unpack(text.tokeniser.encode("[hi]")), range(1, 5)), 3)) == 3


def test_a_window_that_would_have_an_effect_is_refused_with_the_length_that_would_do(folder: Path):
    """At that length the model is served as it is."""
    arguments = ["--model", str(folder), "--num-gpu-blocks-override", "20"]
    with pytest.raises(StartError, match=r"sliding-window attention over 64 tokens .*--max-model-len 64"):
        load(parse_arguments(arguments))
    loaded = load(parse_arguments([*arguments, "--max-model-len", "64"]))
    assert loaded.config.max_model_tokens == 64
    assert loaded.config.eos_ids == {256, 258}
    assert loaded.root == str(folder)


def test_a_model_that_is_not_there_is_named(tmp_path: Path):
    """What was given, and what could be given; nothing is fetched from a hub."""
    with pytest.raises(FileNotFoundError, match=r"absent\.gguf: no such file or folder.*give a GGUF file"):
        find_model(str(tmp_path / "absent.gguf"))
    assert find_model(str(tmp_path)) == tmp_path
    with pytest.raises(ModelRefusedError, match=r"neither a config\.json nor exactly one GGUF file"):
        load_weights(tmp_path, torch.float32)
    with pytest.raises(TokeniserError, match=r"holds no tokenizer\.json"):
        load_model(str(tmp_path))


def test_smollm2_is_loaded_with_its_tokeniser():
    """The model that tests and demo use: `--model smollm2`."""
    threads = torch.get_num_threads()
    loaded = load_model("smollm2", dtype="auto", threads=1)
    torch.set_num_threads(threads)
    assert loaded.runner.vocab_size == 49_152
    assert loaded.runner.context_tokens == 8192
    assert loaded.text.tokeniser.vocabulary_size == 49_152


def test_a_folder_with_one_gguf_file_is_that_model(tmp_path: Path):
    """So that a tokenizer.json can stand beside a file whose own tokeniser is not read here."""
    path = find_model("smollm2")
    (tmp_path / "model.gguf").symlink_to(path)
    write_text_files(tmp_path)
    assert load_weights(tmp_path, torch.float32).config.vocab_size == 49_152
    assert load_tokeniser(tmp_path).tokeniser.vocabulary_size == 257
    (tmp_path / "second.gguf").symlink_to(path)
    with pytest.raises(ModelRefusedError, match="exactly one GGUF file"):
        load_weights(tmp_path, torch.float32)
