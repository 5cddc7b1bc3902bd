"""The order in a line: start-time fair queueing by tenant, in tokens of prompts over weight. Pure; knows no clock.

A request's start tag is where its tenant's last one ended, or the present (the head's tag when somebody last went) if
that is later; the smallest tag is next. So a tenant that asks little is served at once, however long another's line is,
and nobody waits for ever: tags only grow. https://doi.org/10.1145/248157.248171 (Goyal, Vin, Cheng 1996).
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

LOOK_AHEAD: Final = 8
"""Among so many at the head one is preferred that is at home where there is room."""

MOST_OVERTAKEN: Final = 2
"""So often may the head be passed over for it."""


@dataclass(slots=True, eq=False)
class Ticket:
    """One request in the line. `homes` are the workers that its prompt is at home at; `start` its tag."""

    tenant: str
    weight: float
    tokens: float
    homes: Collection[str] = ()
    start: float = 0.0
    number: int = 0
    overtaken: int = 0

    @property
    def finish(self) -> float:
        """Where the tenant's next tag begins."""
        return self.start + self.tokens / self.weight


Kind = TypeVar("Kind", bound=Ticket)


class FairQueue(Generic[Kind]):
    """A line of tickets; `len()` counts them, iterating gives them in order."""

    def __init__(self) -> None:
        self._line: list[tuple[float, int, Kind]] = []
        self._finish: dict[str, float] = {}
        self._served: dict[str, float] = {}
        self._present = 0.0
        self._joined = 0

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Kind]:
        return (ticket for _, _, ticket in self._line)

    def join(self, ticket: Kind) -> None:
        """Take a place behind what one's own tenant has in the line."""
        if not self._line:  # nobody waited: the past counts no more
            self._finish.clear()
            self._served.clear()
            self._present = 0.0
        self._joined += 1
        ticket.number = self._joined
        ticket.start = max(self._present, self._finish.get(ticket.tenant, 0.0))
        self._finish[ticket.tenant] = ticket.finish
        insort(self._line, (ticket.start, ticket.number, ticket))

    def rejoin(self, ticket: Kind) -> None:
        """Back to one's old place: it was one's turn, and there was no room after all."""
        insort(self._line, (ticket.start, ticket.number, ticket))

    def pop(self, has_room: Callable[[str], bool]) -> Kind:
        """The next in order; or, for a few times, the first of the next few whose home has room. Not of an empty line.

        Somebody always goes: room is never kept free for one who is not there.
        """
        # Of the head, not of who goes: else whoever comes now would stand behind all that were passed over.
        self._present = max(self._present, self._line[0][0])
        place = self._at_home(has_room)
        for _, _, passed in self._line[:place]:
            passed.overtaken += 1
        ticket = self._line.pop(place)[2]
        self._served[ticket.tenant] = ticket.finish
        return ticket

    def leave(self, ticket: Kind) -> bool:
        """Go without having been served; whether it was still there. Its tenant does not pay for it."""
        place = bisect_left(self._line, (ticket.start, ticket.number))
        if place == len(self._line) or self._line[place][2] is not ticket:
            return False
        del self._line[place]
        own = (each.finish for each in self if each.tenant == ticket.tenant)
        self._finish[ticket.tenant] = max(own, default=self._served.get(ticket.tenant, self._present))
        return True

    @property
    def last(self) -> Kind:
        """Who is furthest from being served: the one to go when the line is too long."""
        return self._line[-1][2]

    def over_share(self, tenant: str) -> bool:
        """Whether, of those who wait, this tenant has more in the line than its weight entitles it to."""
        backlog: dict[str, float] = {}
        weights: dict[str, float] = {}
        for each in self:
            backlog[each.tenant] = backlog.get(each.tenant, 0.0) + each.tokens
            weights[each.tenant] = each.weight
        own = backlog.get(tenant, 0.0) * sum(weights.values())
        return own > sum(backlog.values()) * weights.get(tenant, 1.0) * (1 + 1e-9)

    def _at_home(self, has_room: Callable[[str], bool]) -> int:
        if self._line[0][2].overtaken < MOST_OVERTAKEN:
            for place, (_, _, ticket) in enumerate(self._line[:LOOK_AHEAD]):
                if not ticket.homes or any(map(has_room, ticket.homes)):
                    return place
        return 0
