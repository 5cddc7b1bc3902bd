"""What one tenant may still take, as pure arithmetic: two buckets that refill, a count of slots, and a budget.

Time is an argument (seconds of any clock that only goes forward). A bucket holds a minute's worth and refills evenly;
what was reserved and not used goes back, what was used beyond it is charged, so a level may go below zero. A request
that costs more than a whole minute's worth passes when the bucket is full, and leaves it in debt.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from gateway.limit_settings import TenantBudget, TenantLimits

MINUTE_SECONDS: Final = 60.0
SLOT_WAIT_SECONDS: Final = 1.0
"""What somebody without a slot is told to wait: nobody knows when one comes free."""

REQUESTS, TOKENS, CONCURRENCY, BUDGET = "requests", "tokens", "concurrency", "budget"


class Refusal(NamedTuple):
    """Which limit is in the way, and how many seconds it will be if nobody else takes anything."""

    limit: str
    wait_seconds: float


class Terms(NamedTuple):
    """A tenant's limits as numbers, None for none. `concurrency` is whole but for a share of a gateway."""

    requests: float | None = None
    tokens: float | None = None
    concurrency: float | None = None
    budget: float | None = None
    budget_seconds: float = 0.0
    budget_refuses: bool = False

    def divided(self, shares: int) -> Terms:
        """One gateway's share where several cannot count together; at least one slot."""
        if shares == 1:
            return self
        slots = self.concurrency
        return self._replace(
            requests=None if self.requests is None else self.requests / shares,
            tokens=None if self.tokens is None else self.tokens / shares,
            concurrency=None if slots is None else max(1.0, slots // shares),
            budget=None if self.budget is None else self.budget / shares,
        )


def terms_of(limits: TenantLimits | None, budget: TenantBudget | None) -> Terms:
    """The numbers in a tenant's settings."""
    return Terms(
        requests=limits.requests_per_minute if limits is not None else None,
        tokens=limits.tokens_per_minute if limits is not None else None,
        concurrency=limits.concurrency if limits is not None else None,
        budget=budget.tokens if budget is not None else None,
        budget_seconds=budget.every_seconds if budget is not None else 0.0,
        budget_refuses=budget is not None and budget.when_spent == "reject",
    )


class Bucket:
    """A level that rises to `capacity` within a minute. `one` is what counts as a whole request in it."""

    __slots__ = ("at", "capacity", "level", "one", "per_second")

    def __init__(self, capacity: float, now: float) -> None:
        self.capacity = self.level = capacity
        self.per_second = capacity / MINUTE_SECONDS
        self.one = min(1.0, capacity)
        self.at = now

    def now_at(self, now: float) -> float:
        """Bring the level up to `now`; a clock that went back changes nothing."""
        level = self.level
        if now > self.at:
            level += (now - self.at) * self.per_second
            if level > self.capacity:
                level = self.capacity
            self.level = level
            self.at = now
        return level

    def add(self, amount: float) -> None:
        """Give back, or charge what is below zero; never above the capacity."""
        self.level += amount
        if self.level > self.capacity:
            self.level = self.capacity

    def seconds_until(self, level: float) -> float:
        """How long until it holds so much, which is at most its capacity."""
        return (level - self.level) / self.per_second if level > self.level else 0.0

    def resize(self, capacity: float) -> None:
        """Another capacity; it is as full as before, in proportion."""
        self.level *= capacity / self.capacity
        self.capacity = capacity
        self.per_second = capacity / MINUTE_SECONDS
        self.one = min(1.0, capacity)


class Allowance:
    """One tenant's state. `held` counts requests under way; `budget_used` and `budget_ends_at` are the period's."""

    __slots__ = ("budget_ends_at", "budget_used", "held", "requests", "terms", "tokens")

    def __init__(self, terms: Terms, now: float) -> None:
        self.terms = terms
        self.held = 0
        self.requests = Bucket(terms.requests, now) if terms.requests is not None else None
        self.tokens = Bucket(terms.tokens, now) if terms.tokens is not None else None
        self.budget_used = 0.0
        self.budget_ends_at: float | None = None

    def adopt(self, terms: Terms, now: float) -> None:
        """Go by other terms from now on; what is used already stays used, in proportion."""
        before, self.terms = self.terms, terms
        self.requests = _resized(self.requests, terms.requests, now)
        self.tokens = _resized(self.tokens, terms.tokens, now)
        if before.budget and terms.budget:
            self.budget_used *= terms.budget / before.budget
        elif terms.budget is None:
            self.budget_used, self.budget_ends_at = 0.0, None

    def spent(self, now: float) -> bool:
        """Whether the budget of this period is used up."""
        terms = self.terms
        if terms.budget is None:
            return False
        if self.budget_ends_at is not None and now >= self.budget_ends_at:
            self.budget_used, self.budget_ends_at = 0.0, None
        return self.budget_used >= terms.budget

    def refusal(self, now: float) -> Refusal | None:
        """Why not even a request without a token would pass; nothing is taken."""
        terms = self.terms
        if terms.budget is not None and self.spent(now) and terms.budget_refuses:
            return Refusal(BUDGET, (self.budget_ends_at or now) - now)
        if terms.concurrency is not None and self.held >= terms.concurrency:
            return Refusal(CONCURRENCY, SLOT_WAIT_SECONDS)
        requests = self.requests
        if requests is not None and requests.now_at(now) < requests.one:
            return Refusal(REQUESTS, requests.seconds_until(requests.one))
        return None

    def take(self, tokens: float, now: float) -> Refusal | None:
        """Take a slot, a request and so many tokens, or nothing at all where there is a refusal."""
        refusal = self.refusal(now)
        if refusal is not None:
            return refusal
        bucket = self.tokens
        if bucket is not None:
            level = bucket.now_at(now)
            if level < tokens and level < bucket.capacity:
                return Refusal(TOKENS, bucket.seconds_until(min(bucket.capacity, tokens)))
            bucket.level -= tokens
        if self.requests is not None:
            self.requests.level -= 1.0
        self.held += 1
        if self.terms.budget is not None:
            self._charge(tokens, now)
        return None

    def pass_by(self, tokens: float, now: float) -> None:
        """Take all the same, whatever is left: nobody is refused at the moment."""
        if self.requests is not None:
            self.requests.now_at(now)
            self.requests.level -= 1.0
        if self.tokens is not None:
            self.tokens.now_at(now)
            self.tokens.level -= tokens
        self.held += 1
        if self.terms.budget is not None:
            self._charge(tokens, now)

    def settle(self, reserved: float, used: float, now: float) -> None:
        """A request that was taken has ended: its slot is free, and the tokens it really used are what it paid."""
        self.held -= 1
        if self.tokens is not None:
            self.tokens.now_at(now)
            self.tokens.add(reserved - used)
        if self.terms.budget is not None:
            self._charge(used - reserved, now)

    def _charge(self, tokens: float, now: float) -> None:
        if self.budget_ends_at is None:
            self.budget_ends_at = now + self.terms.budget_seconds
        self.budget_used = max(0.0, self.budget_used + tokens)


def _resized(bucket: Bucket | None, capacity: float | None, now: float) -> Bucket | None:
    if capacity is None:
        return None
    if bucket is None:
        return Bucket(capacity, now)
    bucket.now_at(now)
    bucket.resize(capacity)
    return bucket
