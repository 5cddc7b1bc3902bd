"""The model's shape from GGUF metadata, and the shapes that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from backends.model.config import ModelRefusedError
from backends.model.gguf_config import config_from_gguf


def build_metadata(**changes: Any) -> dict[str, Any]:
    """A small Llama's metadata; a change of None removes a field (dots written as `__`)."""
    fields = {
        "general.architecture": "llama",
        "llama.block_count": 4,
        "llama.context_length": 512,
        "llama.embedding_length": 96,
        "llama.feed_forward_length": 256,
        "llama.attention.head_count": 6,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
        "llama.rope.freq_base": 500_000.0,
    }
    fields.update({name.replace("__", "."): change for name, change in changes.items()})
    return {name: field for name, field in fields.items() if field is not None}


def test_every_size_is_read():
    """Sizes come from the metadata, the vocabulary from the embedding."""
    config = config_from_gguf(build_metadata(), 1000)
    assert (config.layers, config.hidden_size, config.intermediate_size) == (4, 96, 256)
    assert (config.heads, config.kv_heads, config.head_size, config.qkv_size) == (6, 2, 16, 160)
    assert (config.vocab_size, config.context_tokens) == (1000, 512)
    assert (config.rope_base, config.norm_epsilon) == (500_000.0, 1e-6)


def test_what_old_files_leave_out_has_the_family_s_defaults():
    """No head_count_kv means no sharing; no freq_base means 10,000; key_length may differ from the hidden share."""
    bare = build_metadata(llama__attention__head_count_kv=None, llama__rope__freq_base=None)
    config = config_from_gguf(bare, 10)
    assert (config.kv_heads, config.rope_base) == (6, 10_000.0)
    assert config_from_gguf(build_metadata(llama__attention__key_length=32), 10).head_size == 32


def test_each_architecture_has_its_own_parts():
    """A bias of queries, keys and values in Qwen2, norms of heads in Qwen3, a window where one is given."""

    def parts(architecture: str, **changes: Any) -> tuple[bool, bool, bool, int | None]:
        metadata = build_metadata(**changes) | {"general.architecture": architecture}
        renamed = {name.replace("llama.", f"{architecture}."): value for name, value in metadata.items()}
        config = config_from_gguf(renamed, 10)
        return config.qkv_bias, config.output_bias, config.head_norms, config.window_tokens

    assert parts("llama") == (False, False, False, None)
    assert parts("qwen2", llama__attention__sliding_window=0) == (True, False, False, None)
    assert parts("qwen3", llama__attention__sliding_window=256) == (False, False, True, 256)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"general__architecture": "mamba"}, "architecture 'mamba' is not supported"),
        ({"general__architecture": None}, "architecture None is not supported"),
        ({"llama__block_count": None}, "llama.block_count is None"),
        ({"llama__block_count": 0}, "llama.block_count is 0"),
        ({"llama__context_length": "long"}, "llama.context_length is 'long'"),
        ({"llama__attention__layer_norm_rms_epsilon": None}, "layer_norm_rms_epsilon is None"),
        ({"llama__attention__head_count_kv": 4}, "6 attention heads cannot share 4"),
        ({"llama__attention__key_length": 15}, "head size of 15 is odd"),
        ({"llama__rope__dimension_count": 8}, "rope.dimension_count is 8 .* head size 16"),
        ({"llama__attention__value_length": 8}, "value_length is 8 .* head size 16"),
        ({"llama__expert_count": 8}, "mixture of experts"),
        ({"llama__rope__scaling__type": "linear"}, "rope.scaling.type is 'linear'"),
        ({"llama__rope__scaling__factor": 4.0}, "rope.scaling.factor is 4.0"),
        ({"llama__rope__scale_linear": 2.0}, "rope.scale_linear is 2.0"),
        ({"split__count": 3}, "one of 3 parts"),
        ({"llama__attention__scale": 0.1}, "llama.attention.scale is 0.1 in the GGUF metadata"),
        ({"llama__residual_scale": 0.2}, "llama.residual_scale is 0.2"),
        ({"llama__attention__sliding_window": [0, 512]}, r"attention.sliding_window is \[0, 512\]"),
        ({"llama__feed_forward_length": [256, 512]}, r"feed_forward_length is \[256, 512\]"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(change: dict[str, Any], named: str):
    """A part that would be ignored would give wrong answers."""
    with pytest.raises(ModelRefusedError, match=named):
        config_from_gguf(build_metadata(**change), 10)
