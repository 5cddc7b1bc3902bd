"""How many homes a key has: one, and more while what is asked of it is more than one worker's work.

A prefix too popular for one worker is passed over where what follows it branches (heat). What does not branch, the
same prompt again and again, needs more than one home: the next ones of the ring's walk, which every replica names
alike. The need is the key's load: predicted seconds placed for it in a second, decayed over a minute, which the turns
of a conversation, each waiting for the answer before, seldom bring to half a worker's time. Homes come at once and go
one by one, some time after they were last needed.
"""

from __future__ import annotations

from collections import OrderedDict
from math import ceil, exp
from typing import NamedTuple

WINDOW_SECONDS = 60.0
FULL_SHARE = 0.5
"""Of a worker's time, what one key may take at each home before it gets another."""

KEEP_SHARE = 0.33
"""A home is still needed while the others would have to take more than this; less than FULL_SHARE, against flapping."""

HOLD_SECONDS = 120.0
"""A home that is not needed for so long is given up."""

BOUND_KEYS = 4096
"""Keys watched; the least recently asked for are forgotten first."""

_MOST_REPLICAS = 64.0


class Work(NamedTuple):
    """What one placement adds, in seconds: its prefill, and by how much its decoding is reckoned to slow the worker."""

    prefill_seconds: float
    decode_seconds: float = 0.0


class KeyLoad:
    """One key: seconds placed for it, decayed to `at`, its homes, and when the last of them was needed."""

    __slots__ = ("at", "homes", "needed_at", "seconds")

    def __init__(self, now: float) -> None:
        self.seconds = 0.0
        self.homes = 1
        self.at = self.needed_at = now


class Homes:
    """Homes by key; a key that is not watched has one."""

    __slots__ = ("_all", "_bound_keys", "_keys", "_window")

    def __init__(self, window_seconds: float = WINDOW_SECONDS, bound_keys: int = BOUND_KEYS) -> None:
        self._window = window_seconds
        self._bound_keys = bound_keys
        self._keys: OrderedDict[bytes, KeyLoad] = OrderedDict()
        self._all = KeyLoad(0.0)

    def __len__(self) -> int:
        """How many keys are watched."""
        return len(self._keys)

    def count(self, key: bytes, now: float) -> int:
        """How many homes `key` has at `now`, at least 1; changes nothing."""
        load = self._keys.get(key)
        if load is None or load.homes == 1:
            return 1
        return max(1, load.homes - _unneeded(load, now))

    def spread_keys(self, now: float) -> int:
        """How many keys have more than one home."""
        return sum([self.count(key, now) > 1 for key in self._keys])

    def add(self, key: bytes, work: Work, now: float, *, most: int, fleet_load: float = 0.0) -> None:
        """So much work was placed for `key`, which may have `most` homes.

        `fleet_load` is how many seconds of prefill all replicas together place in a second. Where that is more than
        was placed here, this replica sees only a part of the key's load, and scales it up.
        """
        load = self._keys.get(key)
        if load is None:
            load = self._keys[key] = KeyLoad(now)
            if len(self._keys) > self._bound_keys:
                self._keys.popitem(last=False)
        else:
            self._keys.move_to_end(key)
        placed, window = self._all, self._window
        for one in (load, placed):
            if now > one.at:
                one.seconds *= exp((one.at - now) / window)
                one.at = now
        prefill_seconds, decode_seconds = work
        placed.seconds += prefill_seconds
        load.seconds += prefill_seconds + decode_seconds
        workers = load.seconds / window
        if placed.seconds < fleet_load * window:
            workers *= min(_MOST_REPLICAS, fleet_load * window / max(placed.seconds, 1e-9))
        if load.homes > 1 or workers > FULL_SHARE:
            _settle(load, now, workers, most)

    def check_integrity(self) -> None:
        """Raise AssertionError unless the bound holds and every key has a home and no less than no load."""
        if len(self._keys) > self._bound_keys:
            raise AssertionError("more keys are watched than the bound allows")
        if any(load.homes < 1 or load.seconds < 0 for load in self._keys.values()):
            raise AssertionError("a key has no home, or less than no load")


def _settle(load: KeyLoad, now: float, workers: float, most: int) -> None:
    """Give and take homes; `workers` is the key's load in whole workers."""
    if gone := min(load.homes - 1, _unneeded(load, now)):
        load.homes -= gone
        load.needed_at += gone * HOLD_SECONDS
    needed = min(most, ceil(workers / FULL_SHARE))
    if needed > load.homes:
        load.homes, load.needed_at = needed, now
    elif workers > KEEP_SHARE * (load.homes - 1):
        load.needed_at = now


def _unneeded(load: KeyLoad, now: float) -> int:
    return max(0, int((now - load.needed_at) / HOLD_SECONDS))
