"""A follower and the worker it follows, without sockets: batches with numbers, lives, and a replay, for tests."""

from __future__ import annotations

from gateway.events.follower import Counts, Follower
from tests.gateway.events.followed import answer


class Blocks:
    """A sink that keeps a set: payloads are `life:number:+block` or `-block`."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        self.applied: list[bytes] = []
        self.cleared = 0

    def apply(self, payload: bytes) -> None:
        self.applied.append(payload)
        what = payload.rsplit(b":", 1)[1]
        (self.held.add if what[:1] == b"+" else self.held.discard)(int(what[1:]))

    def clear(self) -> None:
        self.held.clear()
        self.applied.clear()
        self.cleared += 1


class Publisher:
    """A worker: numbers from 0 in each life, and repeats the last `keep` batches to who asks."""

    def __init__(self, keep: int = 10_000) -> None:
        self.keep = keep
        self.life = 0
        self.next = 0
        self.kept: list[tuple[int, bytes]] = []
        self.held: set[int] = set()

    def publish(self, block: int = 1) -> tuple[int, bytes]:
        sign = "-" if block in self.held else "+"
        self.held ^= {block}
        message = self.next, f"{self.life}:{self.next}:{sign}{block}".encode()
        self.next += 1
        self.kept = [*self.kept, message][-self.keep :]
        return message

    def drop(self, block: int) -> None:
        """A batch that found no room: its number is given, and nobody has it."""
        self.publish(block)
        self.kept.pop()

    def restart(self) -> None:
        self.life += 1
        self.next, self.kept, self.held = 0, [], set()

    def replay(self, first: int) -> list[tuple[int, bytes]]:
        return [message for message in self.kept if message[0] >= first]


class Pair:
    """A follower of a publisher, with every question answered at once.

    `broke`: the connection did, and before anything that comes over the next one the last batch heard is asked for.
    """

    def __init__(self, keep: int = 10_000, *, can_ask: bool = True) -> None:
        self.broke = False
        self.worker = Publisher(keep)
        self.sink = Blocks()
        self.follower = Follower(self.sink, can_ask=can_ask)
        self.asked: list[int] = []
        self.follower.catch_up()
        self.answer()

    def answer(self) -> None:
        answer(self.follower, self.worker.replay, self.asked)

    def hear(self, *messages: tuple[int, bytes]) -> None:
        for message in messages:
            if self.broke:
                self.follower.catch_up()
                self.broke = False
            self.follower.hear(*message)
            self.answer()

    def catch_up(self) -> None:
        self.follower.catch_up()
        self.answer()

    @property
    def counts(self) -> Counts:
        return self.follower.counts
