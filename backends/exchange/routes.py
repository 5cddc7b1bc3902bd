"""/v1/cache/…: warm a prompt, look at the cache, give blocks to a peer, pull blocks from one."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from aiohttp import web

from backends.api_errors import ApiError, BadRequestError, invalid
from backends.block_pool import BlockPool
from backends.cache_fields import LONGEST_SECONDS, read_cache_wish
from backends.exchange.block_stream import Head, encode_head
from backends.exchange.cache_map import Seen, build_map, look, slices
from backends.exchange.pull import BATCH_BYTES, BLOCKS_PATH, CANDIDATES, TOTAL_SECONDS, Puller
from backends.hashing import TOKEN_BYTES, BlockKey
from backends.http_bodies import json_answer, read_json
from backends.openai_wire import chat_source, completion_prompts, read_cache_salt
from backends.partitions import PartitionOccupancy
from backends.request_fields import Fields, decode_object
from backends.retention import CachePolicy, Retention
from backends.serving import Worker
from backends.tiers.entry import EntryFormat, Named, name_of
from backends.types import GenerationRequest, SamplingParams
from router.core import PromptSource

MOST_CHAINS = 1000
DIGEST_BYTES = 32


class ForbiddenError(ApiError):
    """Blocks are only for peers that know the token: 403."""

    status = 403
    type = "PermissionDeniedError"


def add_cache_routes(routes: web.UrlDispatcher, worker: Worker) -> None:
    """Register them as far as they are switched on."""
    settings = worker.exchange.settings
    if not settings.routes:
        return
    handlers = CacheHandlers(worker)
    routes.add_post("/v1/cache/warm", handlers.warm)
    routes.add_get("/v1/cache/map", handlers.map)
    puller = worker.exchange.puller
    if settings.peer_token is not None and puller is not None:
        routes.add_get(BLOCKS_PATH, partial(give_blocks, worker, hashlib.sha256(settings.peer_token.encode()).digest()))
        routes.add_post("/v1/cache/pull", partial(pull, worker, puller))


def read_prompt(fields: Fields) -> PromptSource:
    """One prompt: `messages`, or a `prompt` of text or token ids."""
    if fields.value("messages") is not None:
        return chat_source(fields)
    prompts = completion_prompts(fields.value("prompt"))
    if len(prompts) != 1:
        raise invalid("too_long", "body.prompt", "One prompt at a time")
    return PromptSource(prompt=prompts[0])


class CacheHandlers:
    """What concerns this worker alone."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def warm(self, request: web.Request) -> web.Response:
        """Compute a prompt and cache it; with `ttl` (seconds) it stays that long, within the quota of pins."""
        worker, fields = self._worker, Fields(decode_object(await read_json(request)))
        worker.require_model(fields.text("model"))
        source, salt = read_prompt(fields), read_cache_salt(fields.value("cache_salt"))
        ttl = _ttl(fields)
        wish = read_cache_wish(fields, worker.settings.wire_limits.partitions)
        ids = await worker.prompts.read(source, 0)
        warming = GenerationRequest(
            request_id=f"warm-{uuid.uuid4().hex}",
            prompt_ids=ids,
            sampling=SamplingParams(max_tokens=0, temperature=0.0),
            cache_salt=salt,
            arrival_seconds=time.monotonic(),
            cache=wish.policy if ttl is None else CachePolicy(Retention.PIN, ttl),
            partition=wish.partition,
        )
        reused = await self._compute(warming)
        prompt = await worker.engine.call(partial(worker.holdings.prompt, ids, cache_salt=salt))
        block_tokens = worker.settings.block_tokens
        return json_answer(
            {
                "object": "cache.warm",
                "model": fields.text("model") or worker.settings.served_names[0],
                "prompt_tokens": len(ids),
                "cached_tokens": prompt.held_blocks * block_tokens,
                "reused_tokens": reused,
                "ttl": ttl,
            }
        )

    async def _compute(self, warming: GenerationRequest) -> int:
        """Run the request to its end; the tokens that were cached before."""
        worker, reused = self._worker, 0
        with worker.serving():
            async with worker.engine.answer([warming]) as answer:
                async for deltas in answer:
                    reused = deltas[-1].cached_tokens
        return reused

    async def map(self, request: web.Request) -> web.Response:
        """The cache as a picture; `top` chains, and with `hashes=true` the names of all cached blocks."""
        top = _whole_number(request, "top", 20)
        worker = self._worker
        pool, ages, seen = worker.holdings.cache.pool, worker.exchange.ages, list[Seen]()
        for start in slices(pool):
            seen += await worker.engine.call(partial(look, pool, ages, start))
        occupancy = await worker.engine.call(pool.occupancy)
        hashes = request.query.get("hashes") == "true"
        # In a thread: for 65,000 blocks it takes 130 ms, in which no stream would get on.
        return await asyncio.to_thread(_picture, pool, occupancy, seen, min(top, MOST_CHAINS), hashes=hashes)


def _picture(
    pool: BlockPool, occupancy: Sequence[PartitionOccupancy], seen: Sequence[Seen], top: int, *, hashes: bool
) -> web.Response:
    picture = build_map(pool, occupancy, seen, top)
    if hashes:
        picture["hashes"] = sorted({block.key.digest.hex() for block in seen})
    return json_answer(picture)


async def pull(worker: Worker, puller: Puller, request: web.Request) -> web.Response:
    """Bring what a peer has of a prompt; always an answer with counts, whatever the peer did."""
    fields = Fields(decode_object(await read_json(request)))
    worker.require_model(fields.text("model"))
    url = fields.text("from")
    if url is None:
        raise invalid("missing", "body.from", "Field required")
    peer = worker.exchange.peers.named(url)
    ids = await worker.prompts.read(read_prompt(fields), 0)
    wish = read_cache_wish(fields, worker.settings.wire_limits.partitions)
    pulled = await puller.pull(peer, ids, read_cache_salt(fields.value("cache_salt")), wish.partition)
    return json_answer({"object": "cache.pull", **pulled._asdict()})


async def give_blocks(worker: Worker, token_digest: bytes, request: web.Request) -> web.StreamResponse:
    """The chain from `after` to the first of `hash` that is cached, as far as it stays cached while it is sent."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    given = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
    if scheme.lower() != "bearer" or not hmac.compare_digest(given, token_digest):
        raise ForbiddenError("Blocks are only given to peers; the token is not the one of --peer-token-file.")
    hashes = [_digest(text, "hash") for text in request.query.get("hash", "").split(",")[:CANDIDATES]]
    after = _digest(request.query.get("after", ""), "after")
    with worker.exchange.giving():  # a peer that does not read is left after as long as it would wait itself
        async with asyncio.timeout(TOTAL_SECONDS):
            return await _give(worker, hashes, after, request)


async def _give(worker: Worker, hashes: Sequence[bytes], after: bytes, request: web.Request) -> web.StreamResponse:
    """Head and entries, or as many of them as the peer stays for."""
    holdings = worker.holdings
    chain = await worker.engine.call(partial(holdings.chain, hashes, after))
    payload_bytes = await worker.engine.call(lambda: holdings.payload_bytes)
    entries = EntryFormat(holdings.kv_digest, worker.settings.block_tokens * TOKEN_BYTES, payload_bytes)
    response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
    try:
        with suppress(ConnectionResetError):
            await response.prepare(request)
            await response.write(encode_head(Head(entries.config_digest, entries.entry_bytes, len(chain))))
            await _send(worker, chain, entries, response)
            await response.write_eof()
    except BaseException:  # also when the time is over
        if request.transport is not None:
            request.transport.abort()  # else an error would be sent as if it were blocks, and the peer wait for more
        raise
    return response


async def _send(worker: Worker, chain: Sequence[BlockKey], entries: EntryFormat, response: web.StreamResponse) -> None:
    """Read and write some at a time; it ends early, and so is recognised as cut off, when a block went meanwhile."""
    batch = max(1, BATCH_BYTES // entries.entry_bytes)
    for start in range(0, len(chain), batch):
        keys = chain[start : start + batch]
        payloads = await worker.engine.call(partial(worker.holdings.read, keys))
        for key, payload in zip(keys, payloads, strict=False):
            await response.write(entries.seal(Named(key, name_of(key)), payload))
            await response.write(payload)
        worker.exchange.given_blocks += len(payloads)
        if len(payloads) < len(keys):
            break


def _ttl(fields: Fields) -> float | None:
    ttl = fields.number("ttl")
    if ttl is not None and not 0 < ttl <= LONGEST_SECONDS:
        raise BadRequestError(f"ttl must be above 0 and at most {LONGEST_SECONDS:g} seconds.", param="ttl")
    return ttl


def _digest(text: str, name: str) -> bytes:
    try:
        digest = bytes.fromhex(text)
    except ValueError:
        digest = b""
    if len(digest) != DIGEST_BYTES:
        raise BadRequestError(f"{name} must be {2 * DIGEST_BYTES} hex digits.", param=name)
    return digest


def _whole_number(request: web.Request, name: str, default: int) -> int:
    text = request.query.get(name, str(default))
    if not text.isascii() or not text.isdecimal():
        raise BadRequestError(f"{name} must be a whole number.", param=name)
    return int(text[:9])
