"""Blocks that are being computed now: whoever needs them next waits for them instead of computing them again."""

from __future__ import annotations

from collections.abc import Iterable

from backends.hashing import same_chain
from backends.sequence import Sequence


class InFlight:
    """Which running sequence computes which block next, and who follows it.

    Only the next block of each prefill is entered: whoever shares a longer beginning finds all blocks before it in
    the cache, and so misses exactly that one first. A follower is looked at when its leader registers blocks or
    stops running, and at no other time; it holds nothing, so it can neither block anybody nor lose anything.
    """

    __slots__ = ("_computing", "_entered", "_followers", "_leaders")

    def __init__(self) -> None:
        self._computing: dict[bytes, Sequence] = {}
        self._entered: dict[Sequence, int] = {}
        self._followers: dict[Sequence, list[Sequence]] = {}
        self._leaders: dict[Sequence, Sequence] = {}

    def start(self, sequence: Sequence) -> None:
        """A sequence was admitted: what it computes next is under way, if others will find it."""
        if sequence.stores:
            self._enter(sequence)

    def leader_of(self, sequence: Sequence, hit_blocks: int, findable_blocks: int) -> Sequence | None:
        """Who computes the first block that a look-up missed, after `hit_blocks` of at most `findable_blocks`."""
        if hit_blocks >= findable_blocks or not sequence.reads_cache:
            return None
        wanted = sequence.block_keys[hit_blocks]
        leader = self._computing.get(wanted.digest)
        if leader is None or leader.registered_blocks != hit_blocks:
            return None
        return leader if _same_next_block(leader, sequence, hit_blocks) else None

    def follow(self, sequence: Sequence, leader: Sequence) -> None:
        """Wait for what `leader` computes."""
        self._followers.setdefault(leader, []).append(sequence)
        self._leaders[sequence] = leader

    def advanced(self, leader: Sequence, block_tokens: int) -> Iterable[Sequence]:
        """A sequence registered blocks; return those who have nothing more to expect of it."""
        before = self._entered.get(leader)
        if before is None:
            return ()
        self._leave(leader)
        self._enter(leader)
        followers = self._followers.pop(leader, None)
        if followers is None:
            return ()
        staying: list[Sequence] = []
        freed: list[Sequence] = []
        for one in followers:
            (staying if _still_follows(one, leader, before, block_tokens) else freed).append(one)
        if staying:
            self._followers[leader] = staying
        return self._freed(freed)

    def stopped(self, leader: Sequence) -> Iterable[Sequence]:
        """A sequence runs no more; return those who waited for it."""
        if leader in self._entered:
            self._leave(leader)
        return self._freed(self._followers.pop(leader, ()))

    def unfollow(self, sequence: Sequence) -> None:
        """A waiting sequence is gone; it need not have followed anybody."""
        leader = self._leaders.pop(sequence, None)
        if leader is not None:
            self._followers[leader].remove(sequence)

    def _freed(self, followers: Iterable[Sequence]) -> Iterable[Sequence]:
        for follower in followers:
            del self._leaders[follower]
        return followers

    def _enter(self, sequence: Sequence) -> None:
        """Nothing is entered for a sequence whose known tokens fill no further block."""
        following = sequence.registered_blocks
        if following < len(sequence.block_keys):
            self._entered[sequence] = following
            self._computing.setdefault(sequence.block_keys[following].digest, sequence)

    def _leave(self, sequence: Sequence) -> None:
        digest = sequence.block_keys[self._entered.pop(sequence)].digest
        if self._computing.get(digest) is sequence:
            del self._computing[digest]

    def faults(self) -> Iterable[str]:
        """What is broken: a follower without its leader, or a leader that computes nothing."""
        followers = {one: leader for leader, ones in self._followers.items() for one in ones}
        if followers != self._leaders:
            yield "followers and leaders disagree"
        for leader in self._followers:
            if leader not in self._entered or not leader.block_ids:
                yield f"{leader.request_id} is followed, but computes nothing that is wanted"


def _same_next_block(leader: Sequence, sequence: Sequence, index: int) -> bool:
    if leader.block_keys[index].tokens != sequence.block_keys[index].tokens:
        return False
    if index == 0:
        return same_chain(leader.root_key, sequence.root_key)
    return same_chain(leader.block_keys[index - 1], sequence.block_keys[index - 1])


def _still_follows(follower: Sequence, leader: Sequence, before: int, block_tokens: int) -> bool:
    """Whether all that was registered since `before`, and the block after it, are the follower's too."""
    following = leader.registered_blocks
    if following >= min(len(leader.block_keys), (len(follower.token_ids) - 1) // block_tokens):
        return False
    ours, theirs = follower.block_keys, leader.block_keys
    return all(ours[index].tokens == theirs[index].tokens for index in range(before, following + 1))
