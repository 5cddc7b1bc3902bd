"""Which dialect an endpoint is spoken to in."""

from __future__ import annotations

from typing import Final

from gateway.dialects.anthropic import ANTHROPIC
from gateway.dialects.core import Dialect
from gateway.dialects.openai import OPENAI
from gateway.dialects.responses import RESPONSES
from gateway.wire import Endpoint

_OTHERS: Final = {
    Endpoint.RESPONSES: RESPONSES,
    Endpoint.MESSAGES: ANTHROPIC,
    Endpoint.COUNT_TOKENS: ANTHROPIC,
}


def dialect_of(endpoint: Endpoint) -> Dialect:
    """OpenAI's, unless the endpoint is of another API."""
    return _OTHERS.get(endpoint, OPENAI)
