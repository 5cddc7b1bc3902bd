"""What chat completions, completions and embeddings ask for, from the fields of their bodies to a prompt."""

from __future__ import annotations

from typing import Final

from gateway.body_fields import Asked, Fields, check_messages, objects, optional, text_or_tokens
from router.core import PromptSource

_SELDOM: Final = frozenset(("tools", "add_generation_prompt", "chat_template_kwargs", "documents"))
"""What reaches a template beside the messages, and most chats have none of."""


def read_chat(fields: Fields) -> Asked:
    """`messages`, with tools and whatever else reaches the template."""
    return Asked(chat_source(fields), max_tokens=most_output(fields) or None, user=optional(fields, "user", str))


def most_output(fields: Fields) -> int | None:
    """The larger of both bounds of an answer: engines do not agree on which of the two counts.

    A chat's 0 counts for none, as with vLLM and SGLang, which pass over it.
    """
    if "max_completion_tokens" not in fields:
        return optional(fields, "max_tokens", int)  # type: ignore[no-any-return]
    given = (optional(fields, "max_completion_tokens", int), optional(fields, "max_tokens", int))
    return max((bound for bound in given if bound is not None), default=None)


def chat_source(fields: Fields) -> PromptSource:
    """The prompt of a chat."""
    messages = check_messages(fields)
    if _SELDOM.isdisjoint(fields):
        return PromptSource(messages=messages)
    tools = objects(fields, "tools")
    asks = optional(fields, "add_generation_prompt", bool)
    return PromptSource(
        messages=messages,
        tools=tools,
        add_generation_prompt=asks is not False,
        template_arguments=template_arguments(fields),
    )


def template_arguments(fields: Fields) -> dict[str, object]:
    """vLLM's fields that go to the chat template as they are."""
    arguments = dict(optional(fields, "chat_template_kwargs", dict) or {})
    if (documents := optional(fields, "documents", list)) is not None:
        arguments["documents"] = documents
    return arguments


def read_completion(fields: Fields) -> Asked:
    """`prompt`, of which a batch is placed by its first."""
    prompt, batch = text_or_tokens(fields, "prompt")
    return Asked(PromptSource(prompt=prompt), batch, max_tokens=most_output(fields), user=optional(fields, "user", str))


def read_embedding(fields: Fields) -> Asked:
    """`input`, in a completion prompt's shapes; or vLLM's `messages`, for models that embed chats."""
    user = optional(fields, "user", str)
    if fields.get("input") is None and fields.get("messages") is not None:
        return Asked(chat_source(fields), user=user)
    text, batch = text_or_tokens(fields, "input")
    return Asked(PromptSource(prompt=text), batch, user=user)
