"""Writes smollm2_logits.json: the 20 best logits that Hugging Face transformers computes for a few prompts in fp32.

transformers is an oracle, not a dependency of Homing. To write the file anew, from the repository's root:

    python3 -m venv /tmp/oracle
    /tmp/oracle/bin/pip install transformers==5.24.0 accelerate gguf==0.19.0 torch==2.13.0
    /tmp/oracle/bin/python tests/data/golden/make_smollm2_logits.py /path/to/SmolLM2-135M-Instruct.Q4_1.gguf
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

TOP = 20
EVERY_POSITION_UP_TO_TOKENS = 48
"""Longer prompts keep only their last position, so that the file stays small."""

TEXTS = {
    "code": "def fibonacci(n: int) -> int:\n    if n < 2:\n        return n\n    return ",
    "scripts": "Hello   world! 1234 naïve café 日本語 🙂 Привет",
    "one_token": "Once",
    "long": "The gateway sends every prompt to the worker that already remembers it. " * 40,
}
QUESTIONS = (
    "What is the capital of France?",
    "Write one sentence about why caches make computers faster.",
    "List three primary colours.",
)
ANSWER_TOKENS = 60


def main(gguf: Path, out: Path) -> None:
    """Load the model from `gguf`, run the prompts, write `out`."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    prompts = {name: tokenizer(text, add_special_tokens=False)["input_ids"] for name, text in TEXTS.items()}
    chats = {question: chat_ids(tokenizer, question) for question in QUESTIONS}
    prompts["chat"] = chats[QUESTIONS[0]]
    with torch.inference_mode():
        document = {
            "source": f"transformers {transformers.__version__}, torch {torch.__version__}, float32, {gguf.name}",
            "logits": [record(model, name, ids) for name, ids in prompts.items()],
            "answers": [answer(model, tokenizer, question, ids) for question, ids in chats.items()],
        }
    out.write_text(json.dumps(document, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def chat_ids(tokenizer: Any, question: str) -> list[int]:
    """Token ids of one user message under the model's own chat template."""
    message = [{"role": "user", "content": question}]
    text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def record(model: Any, name: str, ids: list[int]) -> dict[str, Any]:
    """The best logits of the wanted positions of one prompt, and each position's sum and maximum magnitude."""
    import torch

    logits = model(torch.tensor([ids])).logits[0]
    first = 0 if len(ids) <= EVERY_POSITION_UP_TO_TOKENS else len(ids) - 1
    best = logits[first:].topk(TOP)
    return {
        "name": name,
        "ids": ids,
        "first_position": first,
        "top_ids": best.indices.tolist(),
        "top_logits": [[round(value, 6) for value in row] for row in best.values.tolist()],
        "logsumexp": [round(value, 6) for value in logits[first:].logsumexp(-1).tolist()],
    }


def answer(model: Any, tokenizer: Any, question: str, ids: list[int]) -> dict[str, Any]:
    """The greedy answer to one question, without its end token."""
    import torch

    out = model.generate(torch.tensor([ids]), max_new_tokens=ANSWER_TOKENS, do_sample=False)[0][len(ids) :]
    kept = [token for token in out.tolist() if token != model.config.eos_token_id]
    return {"question": question, "ids": ids, "answer_ids": kept, "text": tokenizer.decode(kept)}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(__file__).with_name("smollm2_logits.json"))
