"""One request of a limited tenant: refused early where that can be known, let in with what it reserves, settled."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Final

from gateway.accounting import Bill
from gateway.batches import about_tokens, answers_to_each, other_prompts
from gateway.errors import Headers, InvalidRequest, LimitsUnavailable, QuotaSpent, RateLimited
from gateway.limits.account import Account, Question
from gateway.limits.allowance import BUDGET, CONCURRENCY, REQUESTS, TOKENS, Refusal
from gateway.limits.answer_fields import anthropic_fields, openai_fields, retry_headers
from gateway.limits.core import Grant
from gateway.limits.output_bound import longer_output
from gateway.limits.shared import Away, SharedCounts
from gateway.wire import Call, Endpoint

if TYPE_CHECKING:
    from gateway.limits.admission import Limits

OUTPUT, CLOSED = "output", "closed"

_ANTHROPIC: Final = frozenset((Endpoint.MESSAGES, Endpoint.COUNT_TOKENS))
_GENERATING: Final = frozenset((Endpoint.CHAT, Endpoint.COMPLETIONS, Endpoint.RESPONSES, Endpoint.MESSAGES))
_WORDS: Final = {
    REQUESTS: "requests a minute",
    TOKENS: "tokens a minute",
    CONCURRENCY: "requests at a time",
    BUDGET: "tokens",
}


class LimitedGrant:
    """One request of a limited tenant. What it holds is told by `_settle`, which is None while it holds nothing."""

    __slots__ = (
        "_account",
        "_answers",
        "_at",
        "_bill",
        "_call",
        "_limits",
        "_prompt_tokens",
        "_question",
        "_reserved",
        "_via",
    )

    def __init__(self, limits: Limits, account: Account, call: Call, bill: Bill) -> None:
        self._limits = limits
        self._account = account
        self._call = call
        self._bill = bill
        self._question: Question | None = None
        self._reserved = 0.0
        self._prompt_tokens = 0
        self._answers = 1
        self._via = ""
        self._at = 0.0
        """When something was taken."""

    @property
    def fields(self) -> bytes:
        """What is left of the limits at this moment."""
        spell = anthropic_fields if self._call.endpoint in _ANTHROPIC else openai_fields
        return spell(self._account, self._at or self._limits.clock())

    async def __aenter__(self) -> Grant:
        """Refuse early what cannot pass, before anything is spent on its prompt."""
        limits, account = self._limits, self._account
        self._check_output()
        now = limits.clock()
        if limits.shared is None or not limits.shared.up:
            limits.alone(account, now)
        else:
            account.share(1, now)
        refusal = account.allowance.refusal(now)
        if refusal is not None and account.enforced and limits.mode(account) in ("redis", "local"):
            raise self._refused(refusal, fields=True)
        return self

    async def reserve(self, prompt_tokens: int, most_output_tokens: int | None) -> None:
        """Take a slot, a request and tokens, all or nothing."""
        limits, account = self._limits, self._account
        self._prompt_tokens, self._answers = prompt_tokens, answers_to_each(self._call)
        if self._call.batch:
            others = other_prompts(self._call)
            self._prompt_tokens += sum(map(about_tokens, others))
            self._answers *= 1 + len(others)
        self._reserved = self._cost(most_output_tokens)
        refusal = self._take_alone() if limits.shared is None else await self._take_shared(limits.shared)
        if refusal is None:
            return
        if account.enforced:
            raise self._refused(refusal, fields=False)
        limits.count(account, refusal.limit, enforced=False)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give back the slot, and settle what was reserved by what was used."""
        account, limits = self._account, self._limits
        if self._question is not None and self._question.taken:
            self._via = "redis"
        if not self._via:
            return
        used = self._used(error)
        if self._via == "redis":
            account.settle_shared(self._reserved, used)
        else:
            account.settle_alone(self._reserved, used, limits.clock())
        if limits.shared is not None:
            limits.shared.tell(account)
        if account.budget is not None and account.budget.when_spent != "reject":
            limits.warn_of_budget(account, limits.clock())

    def _cost(self, most_output_tokens: int | None) -> float:
        """Tokens to reserve; what only asks for a count of tokens costs none."""
        endpoint, limits = self._call.endpoint, self._account.limits
        if endpoint not in _GENERATING:
            return float(self._prompt_tokens) if self._call.caches else 0.0
        bound = limits.max_output_tokens if limits is not None else None
        most = bound if most_output_tokens is None else most_output_tokens
        return self._account.cost(self._prompt_tokens, most, self._answers)

    def _take_alone(self) -> Refusal | None:
        now = self._limits.clock()
        refusal = self._account.allowance.take(self._reserved, now)
        if refusal is None:
            self._via, self._at = "local", now
        return refusal

    async def _take_shared(self, shared: SharedCounts) -> Refusal | None:
        account = self._account
        self._question = Question(self._reserved, asyncio.get_running_loop().create_future())
        try:
            refusal = await shared.ask(account, self._question)
        except Away:
            self._question = None
            refusal = self._take_while_away()
            shared.passed_alone(account)
            return refusal
        self._bill.stage("limits")
        return refusal

    def _take_while_away(self) -> Refusal | None:
        limits, account = self._limits, self._account
        limits.alone(account, limits.clock())
        mode = account.limits.when_redis_is_away if account.limits is not None else "local"
        if mode == "local":
            return self._take_alone()
        if mode == "closed" and account.enforced:
            limits.count(account, CLOSED, enforced=True)
            raise LimitsUnavailable("What this key has taken is not known at the moment; try again.")
        account.allowance.pass_by(self._reserved, limits.clock())
        self._via = "open"
        return None

    def _used(self, error: BaseException | None) -> float:
        """What the request is charged in the end: what its worker reported, else what can be supposed.

        Who leaves before the worker's count is in pays what was reserved, or the prompt and what has come if that is
        more: else leaving early would be free, and leaving late a bargain.
        """
        bill = self._bill
        usage = bill.usage
        if usage is not None:
            if self._call.endpoint in _GENERATING:
                self._account.learn(usage.completion_tokens / self._answers)
            return usage.prompt_tokens + usage.completion_tokens
        if bill.finished_well or bill.ttft_seconds is not None:
            return max(self._reserved, float(self._prompt_tokens + bill.output_events))
        left = isinstance(error, asyncio.CancelledError)
        return float(self._prompt_tokens) if left and bill.tries else 0.0

    def _check_output(self) -> None:
        account = self._account
        bound = account.limits.max_output_tokens if account.limits is not None else None
        over = longer_output(self._call, bound) if bound is not None else None
        if over is None:
            return
        self._limits.count(account, OUTPUT, enforced=account.enforced)
        if account.enforced:
            told = f"The answer may have {bound} tokens with this key; the request asks for {over.asked}."
            raise InvalidRequest(told, param=over.field)

    def _refused(self, refusal: Refusal, *, fields: bool) -> RateLimited | QuotaSpent:
        self._limits.count(self._account, refusal.limit, enforced=True)
        headers = _pairs(self.fields) if fields else ()
        terms = self._account.terms._asdict()
        told = f"{terms[refusal.limit]:,.0f} {_WORDS[refusal.limit]}"
        if refusal.limit == BUDGET:
            return QuotaSpent(f"This key's budget of {told} is spent.", headers=headers)
        seconds = f"{refusal.wait_seconds:.1f}"
        message = f"This key may take {told}; try again in {seconds} s."
        return RateLimited(message, headers=(*retry_headers(refusal), *headers))


def _pairs(lines: bytes) -> Headers:
    split = (line.partition(": ") for line in lines.decode("latin-1").split("\r\n")[:-1])
    return tuple((name, value) for name, _, value in split)
