"""The table that stands for the peers' trees."""

from itertools import pairwise
from random import Random

from bench.peers.placements import Placements
from tests.bench.peers.builders import build_request


def chain(blocks: str) -> list[bytes]:
    return list(build_request(blocks).prompt.exact_blocks)


def test_matches_are_counted_from_the_beginning_on_for_each_worker():
    """Who diverges earlier matches less; who was sent nothing matches nothing."""
    table = Placements()
    table.insert(chain("abc"), 0)
    table.insert(chain("abx"), 1)
    assert table.matched(chain("abcd"), [0, 1, 2]) == {0: 3, 1: 2, 2: 0}
    assert table.depth(chain("abcd"), [1, 2]) == 2


def test_the_last_that_was_sent_a_block_is_known():
    """And where that one is gone, any other holder."""
    table = Placements()
    table.insert(chain("ab"), 0)
    table.insert(chain("ab"), 1)
    assert table.latest(chain("ab")[-1], [0, 1]) == 1
    table.forget(1)
    assert table.latest(chain("ab")[-1], [0, 1]) == 0
    table.forget(0)
    assert table.latest(chain("ab")[-1], [0, 1]) is None


def test_a_share_forgets_the_least_recent_ends_first():
    """A bounded share keeps beginnings longer than ends."""
    table = Placements(bound_blocks=4)
    table.insert(chain("abc"), 0)
    table.insert(chain("xy"), 0)
    assert table.matched(chain("abc"), [0]) == {0: 2}
    assert table.blocks_of(0) == 4


def test_whatever_happens_matches_agree_with_plain_sets():
    """Random inserts and departures, against one set of blocks for each worker."""
    random, table, sets = Random(3), Placements(), {worker: set() for worker in range(4)}
    for _ in range(400):
        prompt, worker = chain("".join(random.choice("ab") for _ in range(6))), random.randrange(4)
        if random.random() < 0.05:
            table.forget(worker)
            sets[worker].clear()
        else:
            table.insert(prompt, worker)
            sets[worker].update(prompt)
        asked = chain("".join(random.choice("ab") for _ in range(6)))
        wanted = {each: next((d for d, b in enumerate(asked) if b not in held), 6) for each, held in sets.items()}
        assert table.matched(asked, range(4)) == wanted
        assert table.depth(asked, range(4)) == max(wanted.values())


def test_a_bounded_table_stays_a_tree():
    """Random inserts under a bound: whoever holds a block holds all before it, and no more than the bound."""
    random, table = Random(4), Placements(bound_blocks=9)
    for _ in range(300):
        prompt = chain("".join(random.choice("abc") for _ in range(random.randrange(1, 14))))
        table.insert(prompt, random.randrange(3))
        held = [table.holders(block, range(3)) for block in prompt]
        assert all(set(later) <= set(earlier) for earlier, later in pairwise(held))
        assert all(table.blocks_of(worker) <= 9 for worker in range(3))
