"""Requests that workers die of: one more worker may try such a request, then nobody does for a while.

Pure: monotonic seconds are arguments. A prompt is known by a digest under a secret of this process, never by its text.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass
from enum import Enum
from hashlib import blake2b
from typing import Final

MOST_VICTIMS: Final = 2
"""Workers that one prompt may cost. When more have died in `OUTAGE_SECONDS`, no prompt did it."""

OUTAGE_SECONDS: Final = 5.0
BLAME_SECONDS: Final = 5.0
"""A worker found dead so long after it broke a request off died at that request."""

TRIAL_SECONDS: Final = 2.0
"""How long others with a suspect's prompt wait for the one that tries it: who dies of a prompt does so soon."""

MOST_KNOWN: Final = 1024

Fingerprint = bytes


class Verdict(Enum):
    """What to do with a request."""

    GO = "go"
    TRY = "try"
    """It may go, alone of its kind: `over` must be told how it ended."""
    WAIT = "wait"
    REFUSE = "refuse"


@dataclass(slots=True)
class _Suspect:
    deaths: int
    until: float
    tried_until: float = 0.0


class Quarantine:
    """Who died of what, lately. Bounded: the prompts blamed longest ago are forgotten first."""

    def __init__(self, seconds: float = 60.0, secret: bytes | None = None) -> None:
        self._seconds = seconds
        self._secret = secret or os.urandom(32)
        self._suspects: OrderedDict[Fingerprint, _Suspect] = OrderedDict()
        self._broken: OrderedDict[str, dict[Fingerprint, float]] = OrderedDict()
        self._died_at: dict[str, float] = {}

    @property
    def watching(self) -> bool:
        """Whether there is any suspect; nobody needs a fingerprint before."""
        return bool(self._suspects)

    def fingerprint(self, tenant: str, model: str, chain_end: bytes) -> Fingerprint:
        """What a prompt is known by: `chain_end` is the last hash of its chain."""
        told = b"\0".join((tenant.encode(), model.encode(), chain_end))
        return blake2b(told, key=self._secret, digest_size=16).digest()

    def verdict(self, prompt: Fingerprint, now: float) -> Verdict:
        """Whether a request with this prompt may go to a worker now."""
        suspect = self._suspects.get(prompt)
        if suspect is None:
            return Verdict.GO
        if now >= suspect.until:
            del self._suspects[prompt]
            return Verdict.GO
        if suspect.deaths >= MOST_VICTIMS:
            return Verdict.REFUSE
        if now < suspect.tried_until:
            return Verdict.WAIT
        suspect.tried_until = now + TRIAL_SECONDS
        return Verdict.TRY

    def over(self, prompt: Fingerprint, *, well: bool) -> None:
        """A request that was tried has ended: well, which clears its prompt, or otherwise."""
        suspect = self._suspects.get(prompt)
        if suspect is None or suspect.deaths >= MOST_VICTIMS:
            return
        if well:
            del self._suspects[prompt]
        else:
            suspect.tried_until = 0.0

    def broke(self, prompt: Fingerprint, worker: str, now: float) -> None:
        """A worker that had read this prompt broke its connection off. It may live: see `died`."""
        self._broken.setdefault(worker, {})[prompt] = now
        self._broken.move_to_end(worker)
        while len(self._broken[worker]) > MOST_KNOWN:
            self._broken[worker].pop(next(iter(self._broken[worker])))
        while len(self._broken) > MOST_KNOWN:
            self._broken.popitem(last=False)

    def died(self, worker: str, now: float) -> int:
        """A worker is found dead, or to be another process than before: what it broke off just now is to blame.

        Returns how many prompts are quarantined by it. Of an outage nobody is to blame: all are cleared.
        """
        blamed = [prompt for prompt, at in self._broken.pop(worker, {}).items() if now - at <= BLAME_SECONDS]
        self._died_at[worker] = now
        self._died_at = {name: at for name, at in self._died_at.items() if now - at <= OUTAGE_SECONDS}
        if len(self._died_at) > MOST_VICTIMS:
            self._suspects.clear()
            self._broken.clear()
            return 0
        return sum(self._blame(prompt, now) for prompt in blamed)

    def _blame(self, prompt: Fingerprint, now: float) -> bool:
        suspect = self._suspects.setdefault(prompt, _Suspect(0, 0.0))
        self._suspects.move_to_end(prompt)
        if now >= suspect.until:
            suspect.deaths = 0
        suspect.deaths += 1
        suspect.until = now + self._seconds
        while len(self._suspects) > MOST_KNOWN:
            self._suspects.popitem(last=False)
        return suspect.deaths == MOST_VICTIMS
