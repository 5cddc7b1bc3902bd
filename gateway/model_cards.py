"""What /v1/models says: read from workers, merged over them for tenants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec


class ModelCard(msgspec.Struct, frozen=True, kw_only=True):
    """One model or adapter that a worker serves.

    `root` is where the worker has it from (a folder or a hub name), `parent` the base model of an adapter,
    `max_model_len` the longest prompt plus answer in tokens, `cache_fields` the keys of `vllm_xargs` about its cache
    that the worker says it understands.
    """

    id: str
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None
    created: int = 0
    owned_by: str = "homing"
    cache_fields: tuple[str, ...] = ()

    def public(self) -> dict[str, Any]:
        """The card as tenants see it; the worker's folder is the operator's own business."""
        return {
            "id": self.id,
            "object": "model",
            "created": self.created,
            "owned_by": self.owned_by,
            "root": self.id if self.parent is None else self.parent,
            "parent": self.parent,
            "max_model_len": self.max_model_len,
        }


class _Meta(msgspec.Struct):
    """llama.cpp's place for the context length."""

    n_ctx: int | None = None


class _WireCard(msgspec.Struct):
    id: str
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None
    created: int | None = None
    owned_by: str | None = None
    meta: _Meta | None = None
    cache_fields: tuple[str, ...] = ()

    def card(self) -> ModelCard:
        context_tokens = self.max_model_len
        if context_tokens is None and self.meta is not None:
            context_tokens = self.meta.n_ctx
        return ModelCard(
            id=self.id,
            root=self.root,
            parent=self.parent,
            max_model_len=context_tokens if context_tokens is not None and context_tokens > 0 else None,
            created=self.created or 0,
            owned_by=self.owned_by or "homing",
            cache_fields=self.cache_fields,
        )


class _WireList(msgspec.Struct):
    data: list[_WireCard]


_DECODER = msgspec.json.Decoder(_WireList)


def parse_cards(body: bytes) -> tuple[ModelCard, ...]:
    """Read a worker's answer to GET /v1/models; ValueError (msgspec.ValidationError) when it is none."""
    return tuple(card.card() for card in _DECODER.decode(body).data)


def merge_cards(lists: Iterable[Sequence[ModelCard]]) -> tuple[ModelCard, ...]:
    """One card a model: in the order of first mention, with the least `max_model_len` anyone gives."""
    merged: dict[str, ModelCard] = {}
    for card in (card for cards in lists for card in cards):
        known = merged.get(card.id)
        merged[card.id] = card if known is None else _narrowed(known, card)
    return tuple(merged.values())


class KnownModel(NamedTuple):
    """A model or adapter by its merged card: whose it is, and the longest prompt plus answer, the base's if none is
    its own."""

    base: str
    context_tokens: int | None


def known_models(cards: Sequence[ModelCard]) -> dict[str, KnownModel]:
    """What merged cards say of each model and adapter."""
    lengths = {card.id: card.max_model_len for card in cards}
    return {card.id: _known(card, lengths) for card in cards}


def _known(card: ModelCard, lengths: Mapping[str, int | None]) -> KnownModel:
    base, own = card.parent or card.id, card.max_model_len
    return KnownModel(base, lengths.get(base) if own is None else own)


def _narrowed(known: ModelCard, other: ModelCard) -> ModelCard:
    lengths = [length for length in (known.max_model_len, other.max_model_len) if length is not None]
    return msgspec.structs.replace(
        known, max_model_len=min(lengths, default=None), created=min(known.created, other.created)
    )
