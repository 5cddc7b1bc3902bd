"""The model's shape from a Hugging Face config.json, and the settings that are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from backends.model.config import ModelRefusedError
from backends.model.hf_config import FolderConfig, config_from_json, read_config
from backends.model.rope import Llama3Scaling

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def build_settings(architecture: str = "LlamaForCausalLM", **changes: Any) -> dict[str, Any]:
    """A small model's config.json; a change of `...` removes a field."""
    settings = {
        "architectures": [architecture],
        "num_hidden_layers": 4,
        "hidden_size": 96,
        "intermediate_size": 256,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
    } | changes
    return {name: setting for name, setting in settings.items() if setting is not ...}


def read(architecture: str = "LlamaForCausalLM", **changes: Any) -> FolderConfig:
    return config_from_json(build_settings(architecture, **changes), "here/config.json")


def test_every_size_is_read():
    """Counts, base and epsilon; a head of its own unless it is tied."""
    config = read(rope_theta=500_000.0)
    shape = config.shape
    assert (shape.layers, shape.hidden_size, shape.intermediate_size) == (4, 96, 256)
    assert (shape.heads, shape.kv_heads, shape.head_size, shape.qkv_size) == (6, 2, 16, 160)
    assert (shape.vocab_size, shape.context_tokens) == (1000, 8192)
    assert (shape.rope_base, shape.norm_epsilon) == (500_000.0, 1e-5)
    assert (config.tied, config.scaling) == (False, None)
    assert read(tie_word_embeddings=True).tied


def test_what_is_absent_or_null_has_transformers_defaults():
    """No sharing of key-value heads, heads that share out the hidden size, a base of 10,000."""
    shape = read(num_key_value_heads=None, head_dim=None, rms_norm_eps=..., rope_scaling=None).shape
    assert (shape.kv_heads, shape.head_size, shape.norm_epsilon, shape.rope_base) == (6, 16, 1e-6, 10_000.0)
    assert read("Qwen3ForCausalLM").shape.head_size == 128
    assert read("Qwen3ForCausalLM", head_dim=32).shape.head_size == 32


def test_each_architecture_has_its_own_parts():
    """A bias always (Qwen2), on request (Llama, Qwen3) or never (Mistral); head norms (Qwen3)."""

    def parts(architecture: str, **changes: Any) -> tuple[bool, bool, bool]:
        shape = read(architecture, **changes).shape
        return shape.qkv_bias, shape.output_bias, shape.head_norms

    assert parts("LlamaForCausalLM") == (False, False, False)
    assert parts("LlamaForCausalLM", attention_bias=True) == (True, True, False)
    assert parts("MistralForCausalLM", attention_bias=True) == (False, False, False)
    assert parts("Qwen2ForCausalLM", attention_bias=False) == (True, False, False)
    assert parts("Qwen3ForCausalLM") == (False, False, True)
    assert parts("Qwen3ForCausalLM", attention_bias=True) == (True, True, True)


def test_llama_3_s_scaling_is_read_in_every_spelling():
    """transformers 5, transformers 4, and 4 in its early days; without its own context it takes the model's."""
    want = (500_000.0, Llama3Scaling(8.0, 1.0, 4.0, 8192))
    spellings = [
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 500_000.0, **LLAMA3}},
        {"rope_scaling": {"rope_type": "llama3", **LLAMA3}, "rope_theta": 500_000.0},
        {"rope_scaling": {"type": "llama3", **LLAMA3}, "rope_theta": 500_000},
    ]
    for spelling in spellings:
        config = read(**spelling)
        assert (config.shape.rope_base, config.scaling) == want
        del next(iter(spelling.values()))["original_max_position_embeddings"]
        assert read(**spelling, max_position_embeddings=4096).scaling == want[1]._replace(original_context_tokens=4096)


@pytest.mark.parametrize(
    ("architecture", "changes", "window"),
    [
        ("MistralForCausalLM", {"sliding_window": None}, None),
        ("MistralForCausalLM", {"sliding_window": 512}, 512),
        ("MistralForCausalLM", {}, 4096),
        ("Qwen2ForCausalLM", {"sliding_window": 512, "use_sliding_window": False}, None),
        ("Qwen2ForCausalLM", {"sliding_window": 512}, None),
        ("Qwen2ForCausalLM", {"sliding_window": 512, "use_sliding_window": True}, 512),
        ("Qwen2ForCausalLM", {"sliding_window": 512, "use_sliding_window": True, "max_window_layers": 4}, None),
        ("Qwen2ForCausalLM", {"sliding_window": 512, "use_sliding_window": True, "max_window_layers": 3}, 512),
        ("Qwen3ForCausalLM", {"use_sliding_window": True, "layer_types": ["full_attention"] * 4}, None),
        ("LlamaForCausalLM", {"sliding_window": 512}, None),
    ],
)
def test_a_sliding_window_limits_the_length_where_it_is_in_use(
    architecture: str, changes: dict[str, Any], window: int | None
):
    """As transformers decides it; a longer sequence would get wrong answers."""
    assert read(architecture, **changes).shape.window_tokens == window


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"architectures": ["MambaForCausalLM"]}, r"architectures is \['MambaForCausalLM'\] .*Qwen3ForCausalLM"),
        ({"architectures": ["MixtralForCausalLM"]}, r"architectures is \['MixtralForCausalLM'\]"),
        ({"architectures": ...}, "architectures is None"),
        ({"architectures": [3]}, r"architectures is \[3\]"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config is .*'gptq'.*only from a GGUF"),
        ({"compression_config": {"quant_method": "x"}}, "compression_config is "),
        ({"num_local_experts": 8}, "num_local_experts is 8 .*mixture of experts"),
        ({"num_experts": 64}, "num_experts is 64 .*mixture of experts"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu' in here/config.json: only silu"),
        ({"mlp_bias": True}, "mlp_bias is True"),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, "type is 'linear' in rope_scaling of here/config.json"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type is 'yarn' .*supported: default, llama3"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, "rope_type is 'dynamic' in rope_parameters"),
        ({"rope_parameters": {"rope_type": "llama3", **LLAMA3, "factor": None}}, "factor is None"),
        ({"rope_parameters": {"full_attention": {}}}, "rope_parameters is .*one set of settings"),
        ({"rope_scaling": "linear"}, "rope_scaling is 'linear'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5 .*in part"),
        ({"rope_parameters": {"partial_rotary_factor": 0.25}}, "partial_rotary_factor is 0.25 in rope_parameters"),
        ({"layer_types": ["linear_attention"]}, r"layer_types is \['linear_attention'\]"),
        ({"num_hidden_layers": ...}, "num_hidden_layers is None in here/config.json: a count"),
        ({"vocab_size": 0}, "vocab_size is 0"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small' .*a number"),
        ({"num_key_value_heads": 4}, "6 attention heads cannot share 4"),
        ({"head_dim": 15}, "head size of 15 is odd"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(changes: dict[str, Any], named: str):
    """A setting that would be ignored would give wrong answers."""
    with pytest.raises(ModelRefusedError, match=named):
        read(**changes)


@pytest.mark.parametrize(("text", "named"), [("{", "config.json: not valid JSON"), ("[1]", "a JSON object was")])
def test_a_damaged_config_is_named(tmp_path: Path, text: str, named: str):
    """The file, and what is wrong with it."""
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelRefusedError, match=named):
        read_config(tmp_path / "config.json")
