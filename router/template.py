"""A model's own chat template, rendered as the worker renders it: sandboxed jinja2 with transformers' helpers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, NoReturn

from jinja2 import TemplateError as JinjaError
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from router.core import Json
from router.messages import Message, conditioned

_USER, _ANSWER, _AGAIN, _PART, _ARGUMENT = ("homingprobe" + c for c in ("ua", "ab", "uc", "pd", "ae"))
FALLBACK_MARKS = ("<|im_start|>", "<|im_end|>")
FALLBACK_SOURCE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


class TemplateError(ValueError):
    """A chat template that cannot be compiled, or that refuses these messages. Carries no text of the messages."""


class _Refused(JinjaError):
    """The template called raise_exception."""


class _GenerationTag(Extension):
    """`{% generation %}…{% endgeneration %}` marks the answer for training; for us it is its contents."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it as an instance attribute

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """One model's template; compiled at the first use. Safe to render from several threads."""

    def __init__(self, source: str, bos_token: str = "", eos_token: str = "", marks: Sequence[str] = ()) -> None:
        self.source = source
        self.marks = tuple(marks)
        """Markers that the template writes and a tokeniser of bytes should know; a model's own are in its tokens."""
        self._tokens = {"bos_token": bos_token, "eos_token": eos_token}

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None = None,
        *,
        add_generation_prompt: bool = True,
        extra: Mapping[str, Json] | None = None,
        now: float | None = None,
    ) -> str:
        """The prompt text of `messages`, which are made ready by `messages.conditioned` first.

        `extra` are further template arguments; `now` (epoch seconds) is what a template that asks for the date is
        told, in UTC; None tells a fixed date. Raises TemplateError.
        """
        ready = [conditioned(message, joins_parts=not self.takes_parts) for message in messages]
        return self._render(ready, tools, add_generation_prompt, extra or {}, now)

    @property
    def uses_clock(self) -> bool:
        """Whether the template may print the date, which changes the prompt at midnight."""
        return "strftime_now" in self.source

    @cached_property
    def takes_parts(self) -> bool:
        """Whether the template itself goes through an array of content parts."""
        parts = [{"type": "text", "text": _USER}, {"type": "text", "text": _PART}]
        text = self._probe([{"role": "user", "content": parts}])
        return _USER in text and _PART in text and "'type'" not in text and '"type"' not in text

    @cached_property
    def shows_tool_calls(self) -> bool:
        """Whether the arguments of a tool call reach the prompt."""
        call = {"id": "call00001", "type": "function", "function": {"name": "probe", "arguments": {"a": _ARGUMENT}}}
        return _ARGUMENT in self._probe(
            [
                {"role": "user", "content": _USER},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call00001", "name": "probe", "content": _ANSWER},
            ]
        )

    @cached_property
    def user_marker(self) -> str | None:
        """The text that opens a user turn, such as `<|im_start|>user` and a line end; None if it cannot be told."""
        turns = [("user", _USER), ("assistant", _ANSWER), ("user", _AGAIN)]
        messages = [{"role": role, "content": text} for role, text in turns]
        whole, ended = self._probe(messages), self._probe(messages[:2])
        if not (_USER in whole and _AGAIN in whole and _ANSWER in whole and _ANSWER in ended):
            return None
        before = whole[: whole.index(_USER)]
        between = whole[whole.index(_ANSWER) + len(_ANSWER) : whole.index(_AGAIN)]
        closer = ended[ended.index(_ANSWER) + len(_ANSWER) :]
        return _common_suffix(before, between.removeprefix(closer)) or None

    def _probe(self, messages: Sequence[Message]) -> str:
        try:
            return self._render(messages, None, False, {}, None)
        except TemplateError:
            return ""

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Message] | None,
        add_generation_prompt: bool,
        extra: Mapping[str, Json],
        now: float | None,
    ) -> str:
        arguments = {
            "documents": None,
            **self._tokens,
            **extra,
            "messages": messages,
            "tools": tools or None,
            "add_generation_prompt": add_generation_prompt,
            "strftime_now": lambda pattern: _moment(now).strftime(pattern),
        }
        try:
            return str(self._compiled.render(arguments))
        except _Refused as error:
            raise TemplateError(self._reason(error)) from error
        except Exception as error:  # noqa: BLE001 - a template is a program: it may fail in any way
            raise TemplateError(f"the chat template fails on these messages ({type(error).__name__})") from None

    def _reason(self, error: _Refused) -> str:
        """The template's own words if they stand in its source, else none: they may quote the prompt."""
        words = str(error)
        if words and words in self.source:
            return f"the chat template refuses these messages: {words}"
        return "the chat template refuses these messages"

    @cached_property
    def _compiled(self) -> Any:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        try:
            return environment.from_string(self.source)
        except JinjaError as error:
            raise TemplateError(f"the chat template is no valid jinja2: {error}") from error


FALLBACK = ChatTemplate(FALLBACK_SOURCE, marks=FALLBACK_MARKS)
"""ChatML, for models whose own template is not at hand."""


def _common_suffix(left: str, right: str) -> str:
    length = 0
    while length < min(len(left), len(right)) and left[-1 - length] == right[-1 - length]:
        length += 1
    return right[len(right) - length :]


def _moment(now: float | None) -> datetime:
    return datetime.fromtimestamp(now or 0.0, tz=UTC)


def _refuse(message: str = "") -> NoReturn:
    raise _Refused(message)


def _to_json(
    value: Json,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers does it: no HTML escaping, no ASCII escaping."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
