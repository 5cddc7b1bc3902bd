"""Counting in Redis together with the other gateways: one task talks, a request only waits for its own answer.

All that is asked at a moment goes out in one round trip, one call of the script for each tenant. A request that is
cancelled leaves the talk alone; what it was granted is given back when the answer comes, so answers never cross. The
third failure in a row means away: then nobody waits, and Redis is tried once a second in the background.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Final, NamedTuple

from redis.exceptions import NoScriptError

from gateway.limits.account import Account, Question
from gateway.limits.allowance import Refusal, Terms
from gateway.limits.link import LimitsLink, LinkError
from gateway.limits.script import DIGEST, LEASE_SECONDS, SCRIPT, Settled, arguments, read_reply, tenant_key
from gateway.logs import tell_fault
from gateway.supervise import Supervisor, end

FAILURES_TO_AWAY: Final = 3
PROBE_SECONDS: Final = 1.0
PROBE_CALL_SECONDS: Final = 0.25
"""No request waits for a probe, and the first of a process is slow: it connects and loads the script."""

RENEW_SECONDS: Final = LEASE_SECONDS / 4
MOST_QUESTIONS: Final = 512
"""Of one tenant in one call: the script stops everybody else for as long as it runs."""

log = logging.getLogger("homing.limits")


class Away(Exception):
    """Redis does not answer: the caller decides by itself."""


class Asked(NamedTuple):
    """What one call says of one tenant, and who waits for it."""

    account: Account
    questions: Sequence[Question]
    words: tuple[str, ...]


class SharedCounts:
    """`async with` runs it. `up` is False while Redis is away; `name` comes before every key."""

    def __init__(
        self,
        link: LimitsLink,
        name: str,
        clock: Callable[[], float],
        failed: Callable[[], None],
        others: Callable[[], int | None],
        supervisor: Supervisor | None = None,
    ) -> None:
        """`failed` is called for each call that fails or takes too long; `others` says how many other gateways there
        are, None where nobody can know at the moment."""
        self._link = link
        self._name = name
        self._clock = clock
        self._failed = failed
        self._others = others
        self._supervisor = supervisor or Supervisor(clock=clock)
        self._gateway = secrets.token_hex(6)
        self._failures = 0
        self._waiting: dict[str, Account] = {}
        self._holders: dict[str, Account] = {}
        self._something = asyncio.Event()
        self._tasks: tuple[asyncio.Task[None], ...] = ()
        self.up = False
        self.replicas = 1
        """Gateways in all, as last heard while they could hear each other."""

    async def __aenter__(self) -> SharedCounts:
        self._count_gateways()
        await self._probe()
        if not self.up:
            self._failed()
            log.warning("Redis does not count limits now", extra={"fields": {"because": "no answer at the start"}})
        self._tasks = (
            self._supervisor.start("limits", self._talk),
            self._supervisor.start("limits renewal", self._renew),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end(*self._tasks)
        if self.up and self._waiting:
            await self._exchange(self._collect())
        self._let_go(tuple(self._waiting.values()))
        await self._link.cut()

    async def ask(self, account: Account, question: Question) -> Refusal | None:
        """Whether a request may pass: None, or the limit in its way. Raises `Away`."""
        if not self.up:
            raise Away
        account.questions.append(question)
        self.tell(account)
        return await question.answer

    def tell(self, account: Account) -> None:
        """Something of this tenant is to be said; it goes out as soon as the line is free."""
        self._waiting[account.tenant] = account
        self._something.set()

    def passed_alone(self, account: Account) -> None:
        """Something may have been let in without Redis: who counts there must know of it while it lasts."""
        self._remember(account)
        self.tell(account)

    async def _talk(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            try:
                await self._say_or_probe()
            except Exception as error:  # noqa: BLE001 - nobody may wait for a task that is only begun again
                tell_fault(log, error, "while counting limits")
                self._fail((), LinkError("an error"))

    async def _say_or_probe(self) -> None:
        if self.up:
            await self._exchange(self._collect())
            return
        # Not cryptography: only so that gateways do not come back all at once.
        await asyncio.sleep(PROBE_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311
        await self._probe()

    async def _probe(self) -> None:
        """Run the script on a key of its own: who may not write there cannot count."""
        self._something.set()
        words = (tenant_key(self._name, ""), *arguments(self._gateway, 0, Terms(), Settled(), ()))
        try:
            read_reply((await self._link.call([("EVAL", SCRIPT, 1, *words)], PROBE_CALL_SECONDS))[0], 0)
        except (LinkError, ValueError):
            return
        self._failures, self.up = 0, True
        log.info("Redis counts limits")

    def _collect(self) -> list[Asked]:
        accounts, self._waiting = tuple(self._waiting.values()), {}
        return [self._asked(account) for account in accounts]

    def _asked(self, account: Account) -> Asked:
        """What to say of a tenant. Who no longer waits is not asked for; what one call does not hold waits for the
        next."""
        waiting = [question for question in account.questions if not question.answer.done()]
        questions, account.questions = waiting[:MOST_QUESTIONS], waiting[MOST_QUESTIONS:]
        if account.questions:
            self.tell(account)
        held = account.allowance.held
        costs = [question.cost for question in questions]
        words = arguments(self._gateway, held, account.terms, account.take_settled(), costs)
        return Asked(account, questions, (tenant_key(self._name, account.tenant), *words))

    async def _exchange(self, batch: Sequence[Asked]) -> None:
        try:
            answers = await self._call(batch)
            trouble = [self._hear(asked, answer) for asked, answer in zip(batch, answers, strict=True)]
        except LinkError as error:
            self._fail(batch, error)
            return
        except BaseException:
            self._let_go([asked.account for asked in batch], batch)
            raise
        if any(trouble):
            self._fail((), LinkError("an answer that is none of the script's"))
        else:
            self._failures = 0
            self._count_gateways()

    async def _call(self, batch: Sequence[Asked]) -> list[Any]:
        answers = await self._link.call([("EVALSHA", DIGEST, 1, *asked.words) for asked in batch])
        unknown = [place for place, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if unknown:
            again = await self._link.call([("EVAL", SCRIPT, 1, *batch[place].words) for place in unknown])
            for place, answer in zip(unknown, again, strict=True):
                answers[place] = answer
        return answers

    def _hear(self, asked: Asked, answer: Any) -> bool:
        """Pass an answer on to those who wait; True when it is none."""
        try:
            reply = read_reply(answer, len(asked.questions))
        except ValueError:
            self._let_go((), [asked])
            return True
        account = asked.account
        account.heard(reply, self._clock())
        for question, verdict in zip(asked.questions, reply.verdicts, strict=True):
            if question.answer.done():  # cancelled meanwhile: nobody will settle it
                if verdict is None:
                    account.settle_shared(question.cost, 0.0)
                    self.tell(account)
                continue
            question.taken = verdict is None
            question.answer.set_result(verdict)
        self._remember(account)
        return False

    def _remember(self, account: Account) -> None:
        if account.allowance.held:
            self._holders[account.tenant] = account
        else:
            self._holders.pop(account.tenant, None)

    def _fail(self, batch: Sequence[Asked], error: LinkError) -> None:
        self._failed()
        self._failures += 1
        everybody = list(self._waiting.values())
        if self._failures >= FAILURES_TO_AWAY and self.up:
            self.up = False
            log.warning("Redis does not count limits now", extra={"fields": {"because": str(error)}})
            self._something.set()
        self._let_go(everybody, batch)

    def _let_go(self, accounts: Sequence[Account], batch: Sequence[Asked] = ()) -> None:
        """Nobody waits any longer: each decides by itself."""
        waiting = [question for asked in batch for question in asked.questions]
        for account in accounts:
            waiting += account.questions
            account.questions = []
        for question in waiting:
            if not question.answer.done():
                question.answer.set_exception(Away())

    async def _renew(self) -> None:
        """Say again what is held, before the lease of it ends."""
        while True:
            await asyncio.sleep(RENEW_SECONDS)
            self._count_gateways()
            if self.up:
                for account in tuple(self._holders.values()):
                    self.tell(account)

    def _count_gateways(self) -> None:
        others = self._others()
        if others is not None:
            self.replicas = 1 + others
