"""One stream of numbered batches followed without losing any unnoticed: gaps, repeats, restarts. No socket, no clock.

What it goes by. Numbers rise by one from 0 in each life of a worker. A number heard before with the same payload is a
repetition; with another payload, or lower than any that is remembered, it is a new life. After a gap the replay
socket is asked from the last number *heard* on: its payload must be the one remembered, or else a new life has counted
past the old number. What cannot be had again makes the picture worthless: it is cleared and learned anew.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple, Protocol

from xxhash import xxh3_64_intdigest

REMEMBERED = 1024
"""Last payloads, by digest, that a repetition is told from a new life by."""

HELD_BATCHES = 10_000
HELD_BYTES = 64 * 2**20
"""What may wait for a replay to end. More is let go: it leaves a gap, and is asked for again."""


class Sink(Protocol):
    """Whom batches are handed to, each once and in order."""

    def apply(self, payload: bytes) -> None:
        """The next batch."""
        ...

    def clear(self) -> None:
        """Nothing that was told holds any more."""
        ...


class Counts(NamedTuple):
    """Since the start: batches applied, repetitions, gaps noticed, batches that a replay gave, gaps that none could
    fill, and new lives of the worker."""

    applied: int
    repeated: int
    gaps: int
    replayed: int
    lost: int
    lives: int


class Follower:
    """Hands the batches of one stream to `sink`.

    `asks` is the number to ask the replay socket from, None while nothing is missing: whoever owns the sockets looks
    at it after each call, asks, and passes the answer to `replayed` and `replay_ended`; where `questions`, their
    count, has changed meanwhile, the rest of the answer is of no use. Published batches wait until then. `next` is
    the number that comes next. `complete` says that everything was heard since the worker's start, or since it cleared
    its cache, which the sink may say.
    """

    def __init__(self, sink: Sink, *, can_ask: bool) -> None:
        self.asks: int | None = None
        self.questions = 0
        self.complete = False
        self.next = 0
        self._sink = sink
        self._can_ask = can_ask
        self._heard_any = False
        self._digests: OrderedDict[int, int] = OrderedDict()
        self._held: list[tuple[int, bytes]] = []
        self._held_bytes = 0
        self._verified = False
        self._next_when_asked = 0
        self._missing_until: int | None = None
        self._counts = dict.fromkeys(Counts._fields, 0)

    @property
    def counts(self) -> Counts:
        """What happened so far."""
        return Counts(**self._counts)

    # Published

    def hear(self, sequence: int, payload: bytes) -> None:
        """One published batch."""
        if self.asks is not None:
            self._hold(sequence, payload)
        elif sequence == self.next:
            self._apply(sequence, payload)
        elif sequence > self.next:
            self._gap(sequence, payload)
        elif self._remembers(sequence, payload):
            self._counts["repeated"] += 1
        else:
            self._new_life()
            self.hear(sequence, payload)

    def catch_up(self) -> None:
        """Ask for what may have been published unheard; nothing while a replay is under way or cannot be had."""
        if self.asks is None and self._can_ask:
            self._missing_until = None
            self._ask()

    def start_over(self) -> None:
        """Forget everything and ask for it from the beginning, where that can be asked for."""
        self._forget()
        self.next, self._missing_until = 0, None
        if self._can_ask:
            self._ask()

    # Replayed

    def replayed(self, sequence: int, payload: bytes) -> None:
        """One batch of an answer, in the order in which it comes."""
        if self.asks is None or sequence < self.next - 1:
            return
        question = self.questions
        if self._heard_any and not self._verified:
            self._verify(sequence, payload)
        if self.questions != question or sequence < self.next:
            return
        if sequence > self.next:
            self._hole(sequence)
        if sequence == self.next:
            self._counts["replayed"] += 1
            self._apply(sequence, payload)

    def replay_ended(self, *, whole: bool) -> None:
        """The answer is over; `whole` False when it broke off or never came."""
        if self.asks is None:
            return
        progress = self.next > self._next_when_asked
        if not whole and progress:
            self._ask()
        elif whole and self._heard_any and not self._verified:
            # Not even the last batch heard is there: a new life has published fewer, or nothing yet.
            self._new_life()
            self._ask()
        else:
            if whole and not self._heard_any:
                self.complete = True  # nothing was ever published
            missing = self._missing_until is not None and self.next < self._missing_until
            if missing and not progress:
                self._lose()
            self._release()

    # How

    def _ask(self) -> None:
        """From the last number heard on, so that its payload tells whether the worker still lives the same life."""
        self.questions += 1
        self.asks = self._next_when_asked = self.next
        self._verified = not self._heard_any
        if self._heard_any:
            self.asks = self.next - 1

    def _verify(self, sequence: int, payload: bytes) -> None:
        """The first batch of an answer must be the last one heard."""
        if sequence == self.next - 1 and self._remembers(sequence, payload):
            self._verified = True
        elif sequence == self.next - 1:
            self._new_life()
            self._ask()
        else:  # it is no longer kept
            self._lose()
            self._verified = True

    def _hole(self, sequence: int) -> None:
        """An answer leaves out what comes next: it was too much for the sockets, or nobody has it any more."""
        if not self._heard_any:
            self.next = sequence  # the beginning is no longer kept
        elif self.next > self._next_when_asked:
            self._ask()
        else:
            self._lose()
            self.next = sequence

    def _gap(self, sequence: int, payload: bytes) -> None:
        self._counts["gaps"] += 1
        if self._can_ask:
            self._missing_until = sequence
            self._ask()
            self._hold(sequence, payload)
            return
        self._lose()
        self.next = sequence
        self._apply(sequence, payload)

    def _lose(self) -> None:
        """What is missing is nowhere to be had: what is known is worthless, what comes is a new beginning."""
        self._counts["lost"] += 1
        self._forget()

    def _new_life(self) -> None:
        self._counts["lives"] += 1
        self._forget()
        self.next = 0

    def _forget(self) -> None:
        self._sink.clear()
        self._digests.clear()
        self._heard_any = self.complete = False

    def _apply(self, sequence: int, payload: bytes) -> None:
        if not self._heard_any:
            self._heard_any, self.complete = True, sequence == 0
        self._counts["applied"] += 1
        self.next = sequence + 1
        self._verified = True
        self._digests[sequence] = xxh3_64_intdigest(payload)
        if len(self._digests) > REMEMBERED:
            self._digests.popitem(last=False)
        self._sink.apply(payload)

    def _remembers(self, sequence: int, payload: bytes) -> bool:
        return self._digests.get(sequence) == xxh3_64_intdigest(payload)

    def _hold(self, sequence: int, payload: bytes) -> None:
        if len(self._held) < HELD_BATCHES and self._held_bytes + len(payload) <= HELD_BYTES:
            self._held.append((sequence, payload))
            self._held_bytes += len(payload)

    def _release(self) -> None:
        """No replay is under way: take in what waited for it, which may show another gap."""
        self.asks = None
        held, self._held, self._held_bytes = self._held, [], 0
        for sequence, payload in held:
            if self.asks is None and not self._heard_any and not self.complete:
                self.next = sequence  # a new beginning after a loss
            if self.asks is None and sequence < self.next:
                self._counts["repeated"] += 1  # the replay is the newer word; a new life will show itself again
            else:
                self.hear(sequence, payload)
