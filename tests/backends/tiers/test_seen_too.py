"""Two who hear which blocks were found."""

from __future__ import annotations

from collections.abc import Sequence

from backends.hashing import BlockKey
from backends.tiers.interface import MISS, NoOffload, Offload
from backends.tiers.seen_too import SeenToo


class Noting(NoOffload):
    """Brings nothing, but would be asked."""

    brings = True

    def __init__(self) -> None:
        self.calls: list[object] = []

    def seen(self, keys: Sequence[BlockKey]) -> None:
        self.calls.append(("seen", list(keys)))

    def stepped(self, computed_tokens: int, seconds: float) -> None:
        self.calls.append(("stepped", computed_tokens, seconds))

    def reset(self) -> None:
        self.calls.append("reset")


def test_what_was_seen_is_told_to_both_and_all_else_to_the_tiers():
    """The tiers notice no difference."""
    heard: list[list[BlockKey]] = []
    tiers, key = Noting(), BlockKey(b"1", None, b"")
    both: Offload = SeenToo(tiers, lambda keys: heard.append(list(keys)))
    both.seen([key])
    both.stepped(5, 0.5)
    both.reset()
    assert heard == [[key]]
    assert tiers.calls == [("seen", [key]), ("stepped", 5, 0.5), "reset"]
    assert both.brings
    assert both.fetch("a", [key]) == MISS
    assert not SeenToo(NoOffload(), heard.append).brings
