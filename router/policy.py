"""The policies: given every candidate's numbers and the ring, who gets the request, and why.

A policy is a value without state. It says what it compares (`score`, smaller is better, shown for every candidate)
and chooses among the usable candidates; counters and time come from the router, so that asking twice changes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import ceil, inf
from typing import ClassVar, NamedTuple

from xxhash import xxh3_64_intdigest, xxh3_128_digest

from router.candidates import Candidates
from router.ring import Ring
from router.settings import RouterSettings

HOME = "home"
LEFT_HOME_CACHED = "left_home:cached"
LEFT_HOME_LOAD = "left_home:load"
LEFT_HOME_UNAVAILABLE = "left_home:unavailable"
NO_HOME = "no_home"
"""Nobody is on the ring (every weight is 0), yet somebody could serve."""
NO_WORKER = "no_worker"
CHOSEN = "chosen"
"""A policy without homes chose."""

REASONS = (HOME, LEFT_HOME_CACHED, LEFT_HOME_LOAD, LEFT_HOME_UNAVAILABLE, NO_HOME, NO_WORKER, CHOSEN)
"""Every reason that a placement may give: the values of a metric's label."""

SCORE_TIE = 1e-9
"""Scores that differ by no more are equal."""


class Weights(NamedTuple):
    """What a second is worth in the score: α for one's own prefill, γ for slowing others' decoding down."""

    price: float
    decode_weight: float


class Situation(NamedTuple):
    """One request before its choice.

    At least one candidate is usable. `position` finds a worker's index. `home` is the first of the key's `homes` on the
    ring, `slack_seconds` what a home may be worse by.
    """

    candidates: Candidates
    position: Mapping[str, int]
    ring: Ring
    key: bytes
    home: str | None
    homes: int
    slack_seconds: float
    turn: int
    request_id: str
    settings: RouterSettings


class Choice(NamedTuple):
    """The index of the chosen candidate, and the reason; `home` where another than the ring's first was compared."""

    candidate: int
    reason: str
    home: int | None = None


class Policy(ABC):
    """What every policy answers; `several_homes` says that a hot key may have more than one, `has_homes` that a prompt
    goes to its home unless something is in the way, `glances` that router/glance.py may say so in its place."""

    has_homes: ClassVar[bool] = True
    several_homes: ClassVar[bool] = False
    glances: ClassVar[bool] = False

    def key(self, adaptive_key: bytes, tenant: str, session: str | None) -> bytes:  # noqa: ARG002
        """What to look up on the ring: the adaptive key, unless the policy knows better."""
        return adaptive_key

    def scores(self, candidates: Candidates, weights: Weights) -> Sequence[float]:  # noqa: ARG002
        """What is compared, by candidate; 0 if nothing is."""
        return [0.0] * len(candidates)

    def slack_seconds(self, situation: Situation) -> float:  # noqa: ARG002
        """By how much the home may score worse than the best, and is chosen still."""
        return 0.0

    @abstractmethod
    def choose(self, situation: Situation) -> Choice:
        """Pick one of the usable candidates."""


class Homing(Policy):
    """Home first; another worker only if it is better by more than the slack, priced in everybody's waiting."""

    several_homes = True
    glances = True

    def scores(self, candidates: Candidates, weights: Weights) -> Sequence[float]:
        """Seconds that everybody together loses: waiting, α · own prefill, γ · decoding slowed down."""
        price, weight = weights.price, weights.decode_weight
        rows = zip(candidates.wait, candidates.own, candidates.decode, strict=True)
        return [wait + price * own + weight * decode for wait, own, decode in rows]

    def slack_seconds(self, situation: Situation) -> float:
        """As told, or the time in which the home prefills so many tokens."""
        return situation.slack_seconds

    def choose(self, situation: Situation) -> Choice:
        """The best home (or a stand-in for one that cannot serve), unless somebody is better by more than the slack."""
        return _home_within(situation, situation.slack_seconds, situation.homes)


class StrictRing(Policy):
    """Home, left only when its predicted time to first token is much worse than the best's."""

    def scores(self, candidates: Candidates, weights: Weights) -> Sequence[float]:  # noqa: ARG002
        """The predicted time to first token, seconds."""
        return [wait + own for wait, own in zip(candidates.wait, candidates.own, strict=True)]

    def slack_seconds(self, situation: Situation) -> float:
        """The patience."""
        return situation.settings.ring_patience_seconds

    def choose(self, situation: Situation) -> Choice:
        """Home unless somebody's first token would come sooner by more than the patience."""
        return _home_within(situation, self.slack_seconds(situation))


class BoundedRing(Policy):
    """Consistent hashing with bounded loads: walk on from the home to the first worker with room for one more."""

    def scores(self, candidates: Candidates, weights: Weights) -> Sequence[float]:  # noqa: ARG002
        """Requests in flight."""
        return candidates.loads

    def choose(self, situation: Situation) -> Choice:
        """The first with room; when nobody has any, the least loaded, and not the home."""
        bound = _request_bound(situation)
        roomy = (
            index for index in _in_ring_order(situation, situation.key) if situation.candidates.loads[index] < bound
        )
        chosen = next(roomy, None)
        return _explained(situation, _least_loaded(situation, situation.key) if chosen is None else chosen)


class Session(Policy):
    """The ring on the caller's session or user, scoped by tenant; on the adaptive key where there is none."""

    def key(self, adaptive_key: bytes, tenant: str, session: str | None) -> bytes:
        """A hash of tenant and session."""
        if session is None:
            return adaptive_key
        owner = tenant.encode(errors="surrogatepass")
        return xxh3_128_digest(len(owner).to_bytes(8, "little") + owner + session.encode(errors="surrogatepass"))

    def slack_seconds(self, situation: Situation) -> float:  # noqa: ARG002
        """Without end."""
        return inf

    def choose(self, situation: Situation) -> Choice:
        """Home, or the next on the ring that can serve."""
        return _home_within(situation, inf)


class LeastLoaded(Policy):
    """Fewest requests in flight; blind to caches even in ties, which makes it the yardstick for those that are not."""

    has_homes = False

    def scores(self, candidates: Candidates, weights: Weights) -> Sequence[float]:  # noqa: ARG002
        """Requests in flight."""
        return candidates.loads

    def choose(self, situation: Situation) -> Choice:
        """The least loaded; ties in ring order from the request's own id."""
        return Choice(_least_loaded(situation, situation.request_id.encode(errors="surrogatepass")), CHOSEN)


class RoundRobin(Policy):
    """One after the other, in the order of names."""

    has_homes = False

    def choose(self, situation: Situation) -> Choice:
        """Whose turn it is."""
        return Choice(_by_name(situation)[situation.turn % len(situation.candidates.usable)], CHOSEN)


class Random(Policy):
    """Anyone, by a seeded counter: the same seed gives the same choices."""

    has_homes = False

    def choose(self, situation: Situation) -> Choice:
        """A hash of seed and turn picks."""
        dice = situation.settings.seed.to_bytes(8, "little", signed=True) + situation.turn.to_bytes(8, "little")
        return Choice(_by_name(situation)[xxh3_64_intdigest(dice) % len(situation.candidates.usable)], CHOSEN)


POLICIES: Mapping[str, type[Policy]] = {
    "homing": Homing,
    "ring": StrictRing,
    "chwbl": BoundedRing,
    "session": Session,
    "least_loaded": LeastLoaded,
    "round_robin": RoundRobin,
    "random": Random,
}
"""Every policy by the name that settings and tenants use."""


def _home_within(situation: Situation, slack_seconds: float, homes: int = 1) -> Choice:
    """The best of the first `homes` on the ring that can serve, unless somebody is better by more than the slack."""
    scores, best = situation.candidates.scores, _best(situation)
    home = _first_home(situation) if homes == 1 else _best_home(situation, homes)
    if home is not None and scores[home] <= scores[best] + slack_seconds:
        return _explained(situation, home, home)
    return _explained(situation, best, home)


def _first_home(situation: Situation) -> int | None:
    home = None if situation.home is None else situation.position.get(situation.home)
    if home is not None and situation.candidates.inadmissible[home] is None:
        return home
    return next(_in_ring_order(situation, situation.key), None)


def _best_home(situation: Situation, homes: int) -> int | None:
    """Ties go to the first in ring order."""
    walked = islice(_in_ring_order(situation, situation.key), homes)
    return min(walked, key=situation.candidates.scores.__getitem__, default=None)


def _explained(situation: Situation, chosen: int, best_home: int | None = None) -> Choice:
    """The choice with its reason; among several homes it is the best that was left, or not."""
    home = None if situation.home is None else situation.position.get(situation.home)
    if home is None:
        return Choice(chosen, NO_HOME)
    if situation.homes > 1 and best_home is not None:
        home = best_home
    if chosen == home:
        return Choice(chosen, HOME, home)
    if situation.candidates.inadmissible[home] is not None:
        return Choice(chosen, LEFT_HOME_UNAVAILABLE, home)
    cached = situation.candidates.cached_tokens
    return Choice(chosen, LEFT_HOME_CACHED if cached[chosen] > cached[home] else LEFT_HOME_LOAD, home)


def _best(situation: Situation) -> int:
    """Least score; ties by least own work, then by ring order from the key."""
    candidates = situation.candidates
    scores, usable, own = candidates.scores, candidates.usable, candidates.own
    least = min([scores[index] for index in usable]) + SCORE_TIE
    tied = [index for index in usable if scores[index] <= least]
    if len(tied) == 1:
        return tied[0]
    least_own = min([own[index] for index in tied]) + SCORE_TIE
    return _first_on_ring(situation, [index for index in tied if own[index] <= least_own], situation.key)


def _least_loaded(situation: Situation, key: bytes) -> int:
    loads, usable = situation.candidates.loads, situation.candidates.usable
    least = min([loads[index] for index in usable])
    return _first_on_ring(situation, [index for index in usable if loads[index] == least], key)


def _first_on_ring(situation: Situation, indices: Sequence[int], key: bytes) -> int:
    if len(indices) == 1:
        return indices[0]
    among = set(indices)
    on_ring = (index for index in _in_ring_order(situation, key) if index in among)
    return next(on_ring, min(indices, key=situation.candidates.workers.__getitem__))


def _in_ring_order(situation: Situation, key: bytes) -> Iterator[int]:
    """The usable candidates that are on the ring, in walk order."""
    inadmissible = situation.candidates.inadmissible
    for name in situation.ring.walk(key):
        index = situation.position.get(name)
        if index is not None and inadmissible[index] is None:
            yield index


def _by_name(situation: Situation) -> list[int]:
    return sorted(situation.candidates.usable, key=situation.candidates.workers.__getitem__)


def _request_bound(situation: Situation) -> int:
    """How many requests one worker may have in flight, the new one included: relative, with an absolute floor."""
    settings, loads, usable = situation.settings, situation.candidates.loads, situation.candidates.usable
    total = sum([loads[index] for index in usable])
    return max(settings.chwbl_floor, ceil(settings.chwbl_factor * (total + 1) / len(usable)))
