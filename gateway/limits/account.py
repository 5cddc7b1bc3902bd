"""One tenant's account: what it may take, what it is believed to ask next, and what Redis is still to be told of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from gateway.limit_settings import TenantBudget, TenantLimits
from gateway.limits.allowance import Allowance, Refusal, Terms, terms_of
from gateway.limits.script import Reply, Settled
from gateway.tenants import Tenant

FIRST_OUTPUT_TOKENS: Final = 256.0
"""What an answer is taken for while the tenant has had none."""

_LEARNING: Final = 0.1


@dataclass(slots=True)
class Question:
    """One request that asks Redis for leave. `answer` gets its refusal, or None; a cancelled one wants no more."""

    cost: float
    answer: asyncio.Future[Refusal | None]
    taken: bool = False


@dataclass(slots=True)
class Account:
    """`allowance` is the tenant's own count, or what Redis was last heard to say; `shares` is how many gateways the
    limits are divided among in it. `held_elsewhere` and `questions`, `settled` and `owed` concern Redis.
    """

    tenant: str
    limits: TenantLimits | None
    budget: TenantBudget | None
    allowance: Allowance
    terms: Terms
    shares: int = 1
    output_tokens: float = FIRST_OUTPUT_TOKENS
    questions: list[Question] = field(default_factory=list)
    settled_tokens: float = 0.0
    owed_budget: float = 0.0
    warned_until: float = 0.0

    @classmethod
    def open(cls, tenant: Tenant, now: float) -> Account:
        """A new account, nothing of it taken."""
        terms = terms_of(tenant.limits, tenant.budget)
        return cls(tenant.name, tenant.limits, tenant.budget, Allowance(terms, now), terms)

    def adopt(self, tenant: Tenant, now: float) -> None:
        """Go by the tenant's settings as they are now. Tokens of a budget that are spent stay as many, as in Redis."""
        spent = self.allowance.budget_used
        self.limits, self.budget = tenant.limits, tenant.budget
        self.terms = terms_of(tenant.limits, tenant.budget)
        self.allowance.adopt(self.terms.divided(self.shares), now)
        if self.terms.budget is not None:
            self.allowance.budget_used = spent

    def share(self, shares: int, now: float) -> None:
        """Count alone as one of so many, or for all with 1."""
        if shares != self.shares:
            self.shares = shares
            self.allowance.adopt(self.terms.divided(shares), now)

    @property
    def enforced(self) -> bool:
        """Whether a refusal is one, or only counted."""
        return self.limits is None or self.limits.enforce

    @property
    def budget_ratio(self) -> float:
        """The share of the budget that is spent."""
        return self.allowance.budget_used / (self.allowance.terms.budget or 1.0)

    def cost(self, prompt_tokens: int, most_output_tokens: int | None, answers: int = 1) -> float:
        """Tokens to reserve: the prompt's, and for each answer what this tenant's usually have, at most the bound."""
        output = self.output_tokens
        return prompt_tokens + answers * (output if most_output_tokens is None else min(output, most_output_tokens))

    def learn(self, output_tokens: float) -> None:
        """An answer had so many tokens, or each of several on average."""
        self.output_tokens += _LEARNING * (output_tokens - self.output_tokens)

    # What Redis is told and says

    def take_settled(self) -> Settled:
        """What is to be told; afterwards it counts as told, for told twice would be worse than not at all."""
        settled = Settled(self.settled_tokens, self.owed_budget)
        self.settled_tokens = self.owed_budget = 0.0
        return settled

    def heard(self, reply: Reply, now: float) -> None:
        """Redis' word is the allowance; what it let pass here is held from now on."""
        self.share(1, now)
        allowance = self.allowance
        if allowance.requests is not None:
            allowance.requests.level, allowance.requests.at = reply.requests_level, now
        if allowance.tokens is not None:
            allowance.tokens.level, allowance.tokens.at = reply.tokens_level, now
        if allowance.terms.budget is not None:
            allowance.budget_used, allowance.budget_ends_at = reply.budget_used, now + reply.budget_seconds
        allowance.held += sum(verdict is None for verdict in reply.verdicts)

    def settle_shared(self, reserved: float, used: float) -> None:
        """A request that Redis let pass has ended; it is told with the next call."""
        self.allowance.held -= 1
        if self.allowance.terms.tokens is not None:
            self.settled_tokens += used - reserved
        if self.allowance.terms.budget is not None:
            self.owed_budget += used - reserved

    def settle_alone(self, reserved: float, used: float, now: float) -> None:
        """A request that was let pass without Redis has ended; its budget is owed to Redis, where there is one."""
        self.allowance.settle(reserved, used, now)
        if self.allowance.terms.budget is not None:
            self.owed_budget += used
