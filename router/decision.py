"""One decision: what is asked, what is known, and the placement that follows; nothing here changes anything."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from xxhash import xxh3_128_digest

from router.apart import PrefillSizes, add_unheard_waits, home_bonus_seconds, load_factor
from router.assessment import Outlook, assess
from router.candidates import Candidates
from router.core import Placement, Prompt
from router.crowding import Crowding
from router.glance import best_beside, best_home, can_serve, good_enough, numbers
from router.heat import Heat
from router.homes import Homes
from router.learning import OutputLengths
from router.policy import HOME, LEFT_HOME_CACHED, LEFT_HOME_LOAD, NO_WORKER, Policy, Situation, Weights
from router.rates import decode_line
from router.roster import Roster
from router.settings import RouterSettings
from router.utilisation import Utilisation


class Ask(NamedTuple):
    """One request for a placement; `numbered` False lets one home be chosen without a look at the others."""

    prompt: Prompt
    request_id: str
    tenant: str
    policy: str
    session: str | None
    max_tokens: int | None
    exclude: frozenset[str]
    numbered: bool = True


class Decision(NamedTuple):
    """A placement, and its winner: where it is in the roster, seconds of its own prefill, seconds of slowing others.

    Without a winner `at` is 0 and the seconds are none.
    """

    placement: Placement
    at: int = 0
    own_seconds: float = 0.0
    decode_seconds: float = 0.0


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
) -> Decision:
    """Number the candidates and let the policy choose; worker None if nobody can be chosen.

    `apart_from` is how many other replicas place requests that are not heard of.
    """
    key = ring_key(ask, policy, roster, traffic)
    factor = load_factor(apart_from) if apart_from else 1.0
    price = traffic.utilisation.price(now, roster.serving, factor)
    outlook = Outlook(
        price,
        settings.decode_weight,
        traffic.outputs.expect(ask.tenant, ask.max_tokens),
        traffic.decode.slope,
        ask.exclude,
        now,
    )
    home = roster.ring.home(key)
    slack_seconds = _slack_seconds(settings, roster, home)
    if policy.glances and not ask.numbered and not apart_from and settings.decode_weight >= 0:
        decision = _at_a_glance(ask, roster, traffic, outlook, key, home, slack_seconds)
        if decision is not None:
            return decision
    candidates = assess(ask.prompt, roster, policy, outlook)
    if apart_from:
        add_unheard_waits(candidates, roster, traffic.prefills)
        candidates.scores = policy.scores(candidates, Weights(price, settings.decode_weight))
        slack_seconds += home_bonus_seconds(candidates, roster, home, price)
    # The ring may still name one that has just left.
    if policy.several_homes and home is not None and home in roster.position:
        _weigh_crowding(candidates, roster, traffic, ask.prompt, roster.position[home], price, now)
    if not candidates.usable:
        return Decision(Placement(ask.request_id, None, NO_WORKER, ask.policy, home, key, 0, 0.0, candidates, price))
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
    return _chosen(ask, policy, situation, price)


def _chosen(ask: Ask, policy: Policy, situation: Situation, price: float) -> Decision:
    candidates = situation.candidates
    index, reason, at_home = policy.choose(situation)
    placement = Placement(
        request_id=ask.request_id,
        worker=candidates.workers[index],
        reason=reason,
        policy=ask.policy,
        home=situation.home if at_home is None else candidates.workers[at_home],
        key=situation.key,
        predicted_cached_tokens=candidates.cached_tokens[index],
        predicted_seconds=candidates.wait[index] + candidates.own[index],
        candidates=candidates,
        price=price,
        slack_seconds=policy.slack_seconds(situation),
        homes=situation.homes,
    )
    return Decision(placement, index, candidates.own[index], candidates.decode[index])


def _at_a_glance(
    ask: Ask,
    roster: Roster,
    traffic: Traffic,
    outlook: Outlook,
    key: bytes,
    home: str | None,
    slack_seconds: float,
) -> Decision | None:
    """What `choose` would say of the numbers of all, where that can be told from fewer."""
    at = None if home is None else roster.position.get(home)
    if at is None or not can_serve(roster.views[at], outlook.exclude):
        return None
    prompt, price = ask.prompt, outlook.price
    first = numbers(at, prompt, roster, outlook)
    missing = (prompt.tokens - first.cached_tokens) // prompt.block_tokens
    if missing > 0 and traffic.crowding.crowded(roster.states[at], missing, outlook.now):
        return None
    homes = traffic.homes.count(key, outlook.now)
    best = first if homes == 1 else best_home(first, homes, key, prompt, roster, outlook)
    if best is None:
        return None
    chosen, reason = best, HOME
    if not good_enough(best, roster, outlook, slack_seconds):
        chosen_or_none = best_beside(best, prompt, roster, outlook, slack_seconds)
        if chosen_or_none is None:
            return None
        chosen = chosen_or_none
        if chosen.at != best.at:
            reason = LEFT_HOME_CACHED if chosen.cached_tokens > best.cached_tokens else LEFT_HOME_LOAD
    at, cached, wait, own, decode, _ = chosen
    worker, at_home = roster.names[at], roster.names[best.at]
    placement = Placement(
        ask.request_id, worker, reason, ask.policy, at_home, key, cached, wait + own, (), price, slack_seconds, homes
    )
    return Decision(placement, at, own, decode)


def _weigh_crowding(
    candidates: Candidates, roster: Roster, traffic: Traffic, prompt: Prompt, home: int, price: float, now: float
) -> None:
    """Where the home is crowded, everybody is asked whether he is; a prompt that is held pushes nobody out."""
    missing = (prompt.tokens - candidates.cached_tokens[home]) // prompt.block_tokens
    if missing > 0 and traffic.crowding.crowded(roster.states[home], missing, now):
        traffic.crowding.weigh(candidates, roster.states, prompt, price, now)


def ring_key(ask: Ask, policy: Policy, roster: Roster, traffic: Traffic) -> bytes:
    """What the ring is asked for."""
    chain = ask.prompt.key_blocks
    # A prompt that could not be read has no home of its own; its id spreads such requests.
    adaptive = traffic.heat.adaptive_key(chain, hot_share(roster)) if chain else _key_of_its_own(ask.request_id)
    return policy.key(adaptive, ask.tenant, ask.session)


def hot_share(roster: Roster) -> float:
    """A prefix with at least this share of the requests is too popular to have one home."""
    return 1.0 / (2 * roster.serving)


def _key_of_its_own(request_id: str) -> bytes:
    return xxh3_128_digest(request_id.encode(errors="surrogatepass"))


def _slack_seconds(settings: RouterSettings, roster: Roster, home: str | None) -> float:
    """By how much the home may be worse: as told, else the time in which it prefills so many tokens."""
    place = None if home is None else roster.position.get(home)
    if settings.ring_slack_seconds is not None or place is None:
        return settings.ring_slack_seconds or 0.0
    return settings.ring_slack_tokens * roster.states[place].rates.seconds_per_token
