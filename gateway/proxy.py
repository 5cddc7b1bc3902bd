"""ONE REQUEST, START TO FINISH.

bytes in → parse → tenant → normalise, tokenise, hash → place → forward → stream back → account
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

import msgspec

from gateway.accounting import Accounts, Bill
from gateway.attempts import Attempts, Job
from gateway.batches import most_tokens, other_prompts
from gateway.bodies import BODY_SECONDS, check_declared, read_body
from gateway.client_answer import ClientAnswer
from gateway.client_request import ClientRequest
from gateway.deadlines import deadline_of, in_time
from gateway.errors import ContextLengthExceeded, IsolationUnavailable, ModelNotFound
from gateway.fleet import Fleet
from gateway.guarded_fields import check_guarded
from gateway.heartbeats import Heartbeats
from gateway.limits.core import Admission, Unlimited
from gateway.read_bodies import ReadBodies
from gateway.request_fields import expects_continue, forwarded_lines, request_id_of, session_of, wants_debug
from gateway.rewrites.apply import rewrite_call_soon
from gateway.tenants import Tenant, Tenants
from gateway.wire import REPORTING, Call, Endpoint, forward_body
from router.core import Prompt, PromptSource
from router.normalise import FoldRules
from router.router import Router

_NO_BEATS: Final = nullcontext()
_CUTS: Final = msgspec.Raw(b'"auto"')


class PreparesPrompts(Protocol):
    """What the proxy needs of `gateway.prompts.Prompts`."""

    async def prepare(self, model: str, source: PromptSource, *, salt: str | None, rules: FoldRules) -> Prompt:
        """Both chains of a prompt."""
        ...


class Proxy:
    """Takes a request from its bytes to its bill. `routers` gives the router of a model; `remember` is handed what was
    answered well.
    """

    def __init__(
        self,
        *,
        tenants: Tenants,
        prompts: PreparesPrompts,
        routers: Callable[[str], Router],
        fleet: Fleet,
        attempts: Attempts,
        accounts: Accounts,
        body_limit_bytes: int,
        body_seconds: float = BODY_SECONDS,
        heartbeat_seconds: float | None = None,
        remember: Callable[[Job], None] | None = None,
        admission: Admission | None = None,
    ) -> None:
        self._tenants = tenants
        self._prompts = prompts
        self._routers = routers
        self._fleet = fleet
        self._attempts = attempts
        self._accounts = accounts
        self._body_limit_bytes = body_limit_bytes
        self._body_seconds = body_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._remember = remember
        self._admission: Admission = admission or Unlimited()
        self._bodies = ReadBodies()
        self._ids = map(f"{os.urandom(6).hex()}-{{:x}}".format, itertools.count(1))

    async def handle(self, request: ClientRequest, endpoint: Endpoint, answer: ClientAnswer) -> None:
        """Answer one request; raises `GatewayError` when its caller is still to be told what is wrong."""
        with self._accounts.open(next(self._ids)) as bill:
            shown_id = bill.shown_id = request_id_of(request) or bill.request_id
            answer.request_id = shown_id
            answer.fields = answer.dialect.id_lines(shown_id)
            tenant = bill.tenant = self.identify(request)
            bill.stage("auth")
            deadline = deadline_of(request)
            work = self._take_up(request, endpoint, answer, bill, tenant, deadline)
            await (work if deadline is None else in_time(work, deadline, answer, bill))

    async def _take_up(
        self,
        request: ClientRequest,
        endpoint: Endpoint,
        answer: ClientAnswer,
        bill: Bill,
        tenant: Tenant,
        deadline: float | None,
    ) -> None:
        """The request of a known tenant, from its body on."""
        body = await self._read(request)
        bill.resume()
        call = self._bodies.read(tenant.key_digest or tenant.name, endpoint, body)
        bill.stage("parse")
        self._check_model(tenant, call)
        bill.asked(call)
        async with self._admission.admit(tenant, call, bill) as grant:
            try:
                if not tenant.rewrites.is_empty:
                    call = await self._rewritten(tenant, call)
                job = await self._prepare(request, tenant, call, bill)
                job.deadline = deadline
                await grant.reserve(job.prompt.tokens, call.max_tokens)
            finally:
                answer.fields += grant.fields
            with self._beating(call, answer):
                await self._attempts.run(job, answer, bill)
        if bill.finished_well and self._remember is not None and call.endpoint in REPORTING:
            self._remember(job)

    def _beating(self, call: Call, answer: ClientAnswer) -> AbstractContextManager[object]:
        seconds = self._heartbeat_seconds
        return Heartbeats(answer, seconds) if seconds is not None and call.stream and call.caches else _NO_BEATS

    def configure(self, *, body_limit_bytes: int, heartbeat_seconds: float | None) -> None:
        """Other bounds for requests that come from now on."""
        self._body_limit_bytes, self._heartbeat_seconds = body_limit_bytes, heartbeat_seconds

    def identify(self, request: ClientRequest) -> Tenant:
        """Whose request it is; raises `InvalidApiKey`."""
        headers, names = request.headers, request.field_names
        return self._tenants.identify(
            headers["authorization"] if b"authorization" in names else None,
            headers["x-api-key"] if b"x-api-key" in names else None,
        )

    async def _read(self, request: ClientRequest) -> bytes:
        """The decoded body. A client that waits for a go-ahead gets it here: its key is good, its body no larger than
        it may be."""
        if expects_continue(request) and not request.content.is_eof() and request.transport is not None:
            check_declared(request, self._body_limit_bytes)
            request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return await read_body(request, self._body_limit_bytes, seconds=self._body_seconds)

    def _check_model(self, tenant: Tenant, call: Call) -> None:
        """An unknown model and one of other tenants look the same."""
        if not tenant.may_use(call.model) or not self._fleet.knows(call.model):
            raise ModelNotFound("The model does not exist, or this key may not use it.", param="model")

    async def _rewritten(self, tenant: Tenant, call: Call) -> Call:
        """The call with what its tenant lets be changed in its prompt."""
        call, applied = await rewrite_call_soon(call, tenant.rewrites)
        self._accounts.rewritten(tenant.name, {each.rule for each in applied})
        return call

    async def _prepare(self, request: ClientRequest, tenant: Tenant, call: Call, bill: Bill) -> Job:
        tenant.check_partition(call.partition)
        check_guarded(call, may_prioritise=tenant.may_prioritise, kept_apart=tenant.is_kept_apart)
        salt = tenant.salt(call.model, client_salt=call.cache_salt, user=call.user)
        self._check_salted(call, salt)
        prompt = await self._prompts.prepare(call.model, call.source, salt=salt, rules=tenant.fold)
        bill.prompt = prompt
        bill.stage("prepare")
        self._check_length(tenant, call, prompt)
        if call.batch and tenant.max_prompt_tokens is not None:
            await self._check_batch(tenant, call, salt, tenant.max_prompt_tokens)
        return Job(
            call=call,
            tenant=tenant,
            prompt=prompt,
            router=self._routers(call.model),
            session=call.session or session_of(request),
            fields=forwarded_lines(request, bill.request_id),
            body=forward_body(call, salt=salt, ask_usage=call.stream, most_output_tokens=tenant.most_output_tokens),
            strip_usage=call.hides_usage,
            wishes=tenant.wishes if call.endpoint.caches else None,
            debug=tenant.debug_headers and wants_debug(request),
        )

    def _check_salted(self, call: Call, salt: str | None) -> None:
        """Fail closed where workers pass over the salt: tenants would share a cache that they believe is their own."""
        if salt is None or call.endpoint is not Endpoint.MESSAGES or self._fleet.facts(call.model).salts_messages:
            return
        raise IsolationUnavailable(
            "This model's workers are not known to keep caches apart on /v1/messages (`salts_messages`, for the "
            "operator); ask by /v1/chat/completions."
        )

    async def _check_batch(self, tenant: Tenant, call: Call, salt: str | None, most: int) -> None:
        """The same bound for the prompts behind the first; those of few bytes need not be counted."""
        for given in other_prompts(call):
            if most_tokens(given) >= most:
                source = PromptSource(prompt=given)
                prompt = await self._prompts.prepare(call.model, source, salt=salt, rules=tenant.fold)
                _check_bound(prompt, most, call.text_field)

    def _check_length(self, tenant: Tenant, call: Call, prompt: Prompt) -> None:
        """Refuse what no worker can answer before it takes one up; of a mere estimate the worker has the last word."""
        if tenant.max_prompt_tokens is not None:
            _check_bound(prompt, tenant.max_prompt_tokens, call.text_field)
        context_tokens = self._fleet.context_tokens(call.model)
        counted = prompt.text_bytes is None
        if counted and context_tokens is not None and prompt.tokens > context_tokens and not truncates(call):
            raise ContextLengthExceeded(
                f"This model's maximum context length is {context_tokens} tokens; the prompt has {prompt.tokens}. "
                "Shorten it.",
                param=call.text_field,
            )


def _check_bound(prompt: Prompt, most: int, place: str) -> None:
    if prompt.tokens > most:
        raise ContextLengthExceeded(f"The prompt has {prompt.tokens} tokens; this key may send {most}.", param=place)


def truncates(call: Call) -> bool:
    """Whether the caller asks the worker to cut a prompt that is too long: vLLM's `truncate_prompt_tokens`, or
    `truncation` of the Responses API.
    """
    fields = call.raw
    return bytes(fields.get("truncate_prompt_tokens", b"null")) != b"null" or fields.get("truncation") == _CUTS
