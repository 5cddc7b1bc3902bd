"""One decision: what is asked, what is known, and the placement that follows; nothing here changes anything."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from xxhash import xxh3_128_digest

from router.apart import PrefillSizes, add_unheard_waits, home_bonus_seconds, load_factor
from router.assessment import assess
from router.candidates import Candidates
from router.core import Placement, Prompt
from router.crowding import Crowding
from router.heat import Heat
from router.homes import Homes
from router.learning import OutputLengths
from router.policy import NO_WORKER, Policy, Situation, Weights
from router.rates import decode_line
from router.roster import Roster
from router.settings import RouterSettings
from router.utilisation import Utilisation


class Ask(NamedTuple):
    """One request for a placement."""

    prompt: Prompt
    request_id: str
    tenant: str
    policy: str
    session: str | None
    max_tokens: int | None
    exclude: frozenset[str]


class Traffic:
    """What is known of one model's traffic as a whole; `turns` counts placements by policy."""

    __slots__ = ("crowding", "decode", "heat", "homes", "outputs", "prefills", "turns", "utilisation")

    def __init__(self, settings: RouterSettings) -> None:
        self.heat = Heat(settings.heat_half_life_requests, settings.heat_bound_blocks, settings.heat_least_requests)
        self.homes = Homes()
        self.crowding = Crowding()
        self.utilisation = Utilisation(settings.utilisation_window_seconds, settings.price_limit)
        self.outputs = OutputLengths()
        self.prefills = PrefillSizes()
        self.decode = decode_line()
        self.turns: Counter[str] = Counter()


def decide(
    ask: Ask,
    policy: Policy,
    roster: Roster,
    traffic: Traffic,
    settings: RouterSettings,
    now: float,
    apart_from: int = 0,
) -> Placement:
    """Number the candidates and let the policy choose; worker None if nobody can be chosen.

    `apart_from` is how many other replicas place requests that are not heard of.
    """
    key = ring_key(ask, policy, roster, traffic)
    price = traffic.utilisation.price(now, roster.serving, load_factor(apart_from))
    weights = Weights(price, settings.decode_weight)
    candidates = assess(
        ask.prompt,
        roster,
        policy,
        weights,
        expected_output_tokens=traffic.outputs.expect(ask.tenant, ask.max_tokens),
        decode_growth=traffic.decode.slope,
        exclude=ask.exclude,
        now=now,
    )
    home = roster.ring.home(key)
    slack_seconds = _slack_seconds(settings, roster, home)
    if apart_from:
        add_unheard_waits(candidates, roster, traffic.prefills)
        candidates.scores = policy.scores(candidates, weights)
        slack_seconds += home_bonus_seconds(candidates, roster, home, price)
    # The ring may still name one that has just left.
    if policy.several_homes and home is not None and home in roster.position:
        _weigh_crowding(candidates, roster, traffic, ask.prompt, roster.position[home], price, now)
    if not candidates.usable:
        return Placement(ask.request_id, None, NO_WORKER, ask.policy, home, key, 0, 0.0, candidates, price)
    situation = Situation(
        candidates=candidates,
        position=roster.position,
        ring=roster.ring,
        key=key,
        home=home,
        homes=traffic.homes.count(key, now) if policy.several_homes else 1,
        slack_seconds=slack_seconds,
        turn=traffic.turns[ask.policy],
        request_id=ask.request_id,
        settings=settings,
    )
    index, reason, at_home = policy.choose(situation)
    return Placement(
        request_id=ask.request_id,
        worker=candidates.workers[index],
        reason=reason,
        policy=ask.policy,
        home=home if at_home is None else candidates.workers[at_home],
        key=key,
        predicted_cached_tokens=candidates.cached_tokens[index],
        predicted_seconds=candidates.wait[index] + candidates.own[index],
        candidates=candidates,
        price=price,
        slack_seconds=policy.slack_seconds(situation),
        homes=situation.homes,
    )


def _weigh_crowding(
    candidates: Candidates, roster: Roster, traffic: Traffic, prompt: Prompt, home: int, price: float, now: float
) -> None:
    """Where the home is crowded, everybody is asked whether he is; a prompt that is held pushes nobody out."""
    missing = (prompt.tokens - candidates.cached_tokens[home]) // prompt.block_tokens
    if missing > 0 and traffic.crowding.crowded(roster.states[home], missing, now):
        traffic.crowding.weigh(candidates, roster.states, prompt, price, now)


def ring_key(ask: Ask, policy: Policy, roster: Roster, traffic: Traffic) -> bytes:
    """What the ring is asked for."""
    return policy.key(_adaptive_key(ask, roster, traffic), ask.tenant, ask.session)


def hot_share(roster: Roster) -> float:
    """A prefix with at least this share of the requests is too popular to have one home."""
    return 1.0 / (2 * roster.serving)


def _adaptive_key(ask: Ask, roster: Roster, traffic: Traffic) -> bytes:
    chain = ask.prompt.key_blocks
    if not chain:
        # A prompt that could not be read has no home of its own; its id spreads such requests.
        return xxh3_128_digest(ask.request_id.encode(errors="surrogatepass"))
    return traffic.heat.adaptive_key(chain, hot_share(roster))


def _slack_seconds(settings: RouterSettings, roster: Roster, home: str | None) -> float:
    """By how much the home may be worse: as told, else the time in which it prefills so many tokens."""
    place = None if home is None else roster.position.get(home)
    if settings.ring_slack_seconds is not None or place is None:
        return settings.ring_slack_seconds or 0.0
    return settings.ring_slack_tokens * roster.states[place].rates.seconds_per_token
