"""The one script that counts in Redis: what is sent of a tenant, and what comes back.

One hash for each tenant, under a digest of its name: `r` and `t` are the levels of the buckets of requests and tokens
with their times (`r@`, `t@`, milliseconds of Redis' clock), `b` the tokens of the budget's period that ends at `b@`,
and `g:GATEWAY` a gateway's requests under way as `COUNT:EXPIRES`. A gateway says its whole count each time, so that it
is right again after any loss, and never below zero. Commands of Redis 6.2.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from gateway.limits.allowance import BUDGET, CONCURRENCY, REQUESTS, TOKENS, Refusal, Terms

LEASE_SECONDS: Final = 10.0
"""How long the slots of a gateway that no longer speaks stay taken."""

SCRIPT: Final = b"""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local mine, lease, held = 'g:' .. ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local requests, tokens, slots = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local budget, period, refuses = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[9] == '1'

local function number(text, otherwise)
  local value = tonumber(text)
  if value == nil or value ~= value or value > 1e15 or value < -1e15 then return otherwise end
  return value
end

if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then redis.call('DEL', KEYS[1]) end
local kept, others, dead = {}, 0, {}
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local name, value = fields[i], fields[i + 1]
  if string.sub(name, 1, 2) ~= 'g:' then
    kept[name] = value
  elseif name ~= mine then
    local count, expires = string.match(value, '^(%d+):(%d+)$')
    count, expires = number(count, 0), number(expires, 0)
    if expires > now and expires <= now + lease then others = others + count else dead[#dead + 1] = name end
  end
end

local function level(name, limit)
  local at = math.min(now, number(kept[name .. '@'], now))
  return math.min(limit, number(kept[name], limit) + (now - at) * limit / 60000)
end
local r, t = level('r', requests), level('t', tokens)
local used, ends = number(kept['b'], 0), number(kept['b@'], 0)
if ends <= now or ends > now + period then used, ends = 0, now + period end

t = math.min(tokens, t - tonumber(ARGV[10]))
used = math.max(0, used + tonumber(ARGV[11]))

local function take(cost)
  if budget > 0 and refuses and used >= budget then return 4, ends - now end
  if slots > 0 and others + held >= slots then return 1, 1000 end
  if requests > 0 and r < 1 then return 2, math.ceil((1 - r) * 60000 / requests) end
  local needed = math.min(cost, tokens)
  if tokens > 0 and t < needed then return 3, math.ceil((needed - t) * 60000 / tokens) end
  r, t, held, used = r - 1, t - cost, held + 1, used + cost
  return 0, 0
end

local answer = {0, 0, 0, 0, 0}
for i = 12, #ARGV do
  local code, wait = take(tonumber(ARGV[i]))
  answer[#answer + 1] = code
  answer[#answer + 1] = wait
end

local set = {'HSET', KEYS[1]}
local function put(name, value) set[#set + 1] = name; set[#set + 1] = value end
if requests > 0 then put('r', tostring(r)); put('r@', string.format('%.0f', now)) end
if tokens > 0 then put('t', tostring(t)); put('t@', string.format('%.0f', now)) end
if budget > 0 then put('b', string.format('%.0f', used)); put('b@', string.format('%.0f', ends)) end
if held > 0 then put(mine, string.format('%.0f:%.0f', held, now + lease)) else dead[#dead + 1] = mine end
if #set > 2 then redis.call(unpack(set)) end
for _, name in ipairs(dead) do redis.call('HDEL', KEYS[1], name) end
local life = 120000
if budget > 0 then life = math.max(life, ends - now) end
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life))

answer[1], answer[2] = math.floor(r * 1000), math.floor(t * 1000)
answer[3], answer[4], answer[5] = others, math.floor(used), ends - now
return answer
"""

DIGEST: Final = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()

_HEAD: Final = 5
_LIMITS: Final = {1: CONCURRENCY, 2: REQUESTS, 3: TOKENS, 4: BUDGET}
_MOST: Final = 2**53


class Settled(NamedTuple):
    """What ended since a tenant was last told of: tokens to charge to its bucket (given back below zero) and to its
    budget."""

    tokens: float = 0.0
    budget: float = 0.0


class Reply(NamedTuple):
    """A tenant's state after a call; `verdicts` has None for each request that passed, in the order asked.

    `others_held` is what the other gateways hold. The levels are in requests and tokens, `budget_seconds` what is left
    of the period.
    """

    requests_level: float
    tokens_level: float
    others_held: int
    budget_used: float
    budget_seconds: float
    verdicts: tuple[Refusal | None, ...]


def tenant_key(prefix: str, tenant: str) -> str:
    """The hash of a tenant. No name is in Redis; the braces keep it on one node of a cluster."""
    digest = hashlib.blake2b(tenant.encode(errors="surrogatepass"), digest_size=12).hexdigest()
    return f"{prefix}:limits:{{{digest}}}"


def arguments(gateway: str, held: int, terms: Terms, settled: Settled, costs: Sequence[float]) -> tuple[str, ...]:
    """The script's ARGV; 0 stands for no limit."""
    return (
        gateway,
        f"{LEASE_SECONDS * 1e3:.0f}",
        str(held),
        *(f"{limit or 0:.0f}" for limit in (terms.requests, terms.tokens, terms.concurrency, terms.budget)),
        f"{terms.budget_seconds * 1e3:.0f}",
        "1" if terms.budget_refuses else "0",
        f"{settled.tokens:.0f}",
        f"{settled.budget:.0f}",
        *(f"{cost:.0f}" for cost in costs),
    )


def read_reply(answer: Any, asked: int) -> Reply:
    """What the script said of so many requests; ValueError for anything that it cannot have said."""
    if not isinstance(answer, list) or len(answer) != _HEAD + 2 * asked:
        raise ValueError("not the answer of this script")
    for number in answer:
        if type(number) is not int or abs(number) > _MOST:
            raise ValueError("not a number of this script")
    requests, tokens, others, used, ends = answer[:_HEAD]
    pairs = zip(answer[_HEAD::2], answer[_HEAD + 1 :: 2], strict=True)
    return Reply(
        requests / 1e3, tokens / 1e3, max(0, others), max(0, used), max(0, ends) / 1e3, tuple(map(_verdict, pairs))
    )


def _verdict(pair: tuple[int, int]) -> Refusal | None:
    code, wait_milliseconds = pair
    if code == 0:
        return None
    if code not in _LIMITS:
        raise ValueError("not a verdict of this script")
    return Refusal(_LIMITS[code], max(0, wait_milliseconds) / 1e3)
