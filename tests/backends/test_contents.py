"""What the pool has cached, and what it tells its journal: first copies, last copies, what is about to be lost."""

from __future__ import annotations

from backends.hashing import BlockHasher, pack
from backends.retention import Retention
from tests.backends.core_builders import short_digest
from tests.backends.pool_builders import Reader, build_chain, build_pool, fill, found, give_back, take, use


class Diary:
    """A journal that writes down what it is told, by the first token of each block."""

    def __init__(self) -> None:
        self.lines: list[tuple] = []
        self.pool = None

    def stored(self, key, block_id) -> None:
        self.lines.append(("stored", name(key), block_id))

    def overwritten(self, key, block_id) -> None:
        assert self.pool is None or self.pool.key_of(block_id) is key, "its content is still there"
        self.lines.append(("overwritten", name(key), block_id))

    def removed(self, key) -> None:
        self.lines.append(("removed", name(key)))

    def cleared(self) -> None:
        self.lines.append(("cleared",))

    def take(self) -> list[tuple]:
        lines, self.lines = self.lines, []
        return lines


def name(key) -> int:
    return int.from_bytes(key.tokens[:4], "little")


def build_diary(blocks: int, *partitions: str):
    diary = Diary()
    diary.pool = build_pool(blocks, *partitions, journal=diary)
    return diary.pool, diary


def test_a_chain_is_stored_head_first():
    """A parent before its child, each with the block it is in."""
    pool, diary = build_diary(4)
    table = use(pool, [5, 6])
    assert diary.take() == [("stored", 5, table[0]), ("stored", 6, table[1])]


def test_a_block_that_is_taken_is_told_before_and_after():
    """Overwritten while its content can still be copied away, then removed."""
    pool, diary = build_diary(2)
    old = use(pool, [5, 6])
    diary.take()
    pool.get_new_blocks(1)
    assert diary.take() == [("overwritten", 6, old[1]), ("removed", 6)]


def test_only_the_first_copy_is_stored_and_only_the_last_removed():
    """Trap 9: two prefills of one prompt at once are one content, and a reader must not lose it early."""
    pool, diary = build_diary(3)
    one, two = pool.get_new_blocks(2)
    key, twin = build_chain([5])[0], build_chain([5])[0]
    root = key.parent
    pool.cache_full_block(one, key, root)
    pool.cache_full_block(two, twin, root)
    assert diary.take() == [("stored", 5, one)]
    pool.evict([one])
    assert diary.take() == []
    assert found(pool, [5]) == [two]
    pool.evict([two])
    assert diary.take() == [("removed", 5)]


def test_a_copy_that_is_taken_is_overwritten_but_not_removed():
    """The other one still has the content."""
    pool, diary = build_diary(2)
    one, two = pool.get_new_blocks(2)
    for block_id in (one, two):
        key = build_chain([5])[0]
        pool.cache_full_block(block_id, key, key.parent)
    pool.free_blocks([one, two])
    diary.take()
    pool.get_new_blocks(1)
    assert diary.take() == [("overwritten", 5, one)]
    pool.get_new_blocks(1)
    assert diary.take() == [("overwritten", 5, two), ("removed", 5)]


def test_equal_digests_of_different_content_are_not_copies():
    """With a hash of no bits at all, each content is stored and removed by itself."""
    pool, diary = build_diary(3)
    hasher = BlockHasher(2, short_digest(0))
    for token in (5, 6):
        (block_id,), keys = pool.get_new_blocks(1), []
        hasher.extend(keys, root := hasher.root(), pack([token, token]))
        pool.cache_full_block(block_id, keys[0], root)
        pool.free_blocks([block_id])
    assert [line[:2] for line in diary.take()] == [("stored", 5), ("stored", 6)]
    pool.evict([1, 2])
    assert diary.take() == [("removed", 5), ("removed", 6)]


def test_a_reset_is_one_line():
    """Everything was forgotten at once; nothing is told of single blocks."""
    pool, diary = build_diary(4)
    use(pool, [5, 6, 7])
    diary.take()
    assert pool.reset()
    assert diary.take() == [("cleared",)]
    use(pool, [5])
    assert [line[0] for line in diary.take()] == ["stored"]


def test_a_refused_reset_is_told_nobody():
    """Nothing happened."""
    pool, diary = build_diary(4)
    table = take(pool, [5])
    diary.take()
    assert not pool.reset()
    assert diary.take() == []
    give_back(pool, table)


def test_a_reader_of_the_journal_knows_what_is_cached():
    """After each of two hundred requests in three partitions: stored, less removed, is what the pool has."""
    reader = Reader()
    pool = build_pool(12, "a=0.2:0.6", "b=0.1:1", journal=reader)
    for number in range(200):
        use(pool, [number % 7, 10 + number % 5], ("", "a", "b")[number % 3])
        fill(pool, (100 + number % 11,), "b")
        reader.check(pool)
    assert len(reader.live) > 6
    pool.check_integrity([])


def test_what_is_taken_by_evicting_starts_without_hits_and_without_wishes():
    """They were for the content that is lost."""
    pool = build_pool(3)
    use(pool, [1, 2, 3])
    pool.retain(use(pool, [1, 2, 3]), Retention.PRIORITY, 50.0)
    taken = pool.get_new_blocks(3)
    states = {(block.uses, block.heat, block.retention, block.until) for block in pool.blocks(slice(1, None))}
    assert states == {(0, 0.0, Retention.NORMAL, None)}
    pool.free_blocks(taken)
