"""The prefix memo: bounded, ordered so that nothing needed is evicted, and safe between threads."""

from __future__ import annotations

import random
import threading
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.memo import NODE_BYTES, Node, PrefixMemo


def build_path(*names: str, blocks: int = 1) -> list[Node]:
    """A chain of nodes, one for each name; the key is the path so far."""
    path: list[Node] = []
    for name in names:
        parent = path[-1] if path else None
        key = (parent.key if parent else b"") + b"/" + name.encode()
        own = tuple(key + bytes([number]) for number in range(blocks))
        path.append(Node(key, parent, own, own[-1] if own else b"", b"", blocks * (len(path) + 1)))
    return path


def keys_of(path: list[Node]) -> list[bytes]:
    """What a look-up asks for."""
    return [node.key for node in path]


def test_the_longest_remembered_prefix_is_found() -> None:
    """And nothing where the first segment is new."""
    memo = PrefixMemo(10**6)
    path = build_path("system", "hello", "answer")
    memo.keep(path[-1])
    longer = build_path("system", "hello", "answer", "again")
    other = build_path("system", "bye")
    assert memo.deepest(keys_of(longer)) is path[-1]
    assert memo.deepest(keys_of(other)) is path[0]
    assert memo.deepest(keys_of(build_path("other"))) is None
    assert memo.deepest([]) is None
    memo.check_integrity()


def test_a_node_gathers_the_blocks_of_its_ancestors() -> None:
    """Each holds only its own: memory grows with the text, not with its square."""
    path = build_path("a", "b", "c", blocks=2)
    assert path[-1].all_blocks() == [block for node in path for block in node.blocks]
    memo = PrefixMemo(10**6)
    for node in path:
        memo.keep(node)
    assert memo.held_bytes == sum(node.size_bytes for node in path)


def test_what_was_not_used_for_longest_is_evicted_from_its_end() -> None:
    """A conversation loses its latest turn first, and never a prefix that another one shares."""
    turns = [build_path("system", f"user {number}") for number in range(10)]
    memo = PrefixMemo(turns[0][0].size_bytes * 6)
    for path in turns:
        memo.keep(path[-1])
        memo.check_integrity()
    assert len(memo) == 6
    assert memo.deepest(keys_of(turns[-1])) is not None
    assert memo.deepest(keys_of(turns[0])) is not None, "the shared system text stays"
    assert memo.deepest(keys_of(turns[0])[:2]).key == turns[0][0].key  # type: ignore[union-attr]


def test_a_prefix_longer_than_the_bound_keeps_its_beginning() -> None:
    """The beginning is what other prompts may share."""
    path = build_path(*(str(number) for number in range(50)))
    memo = PrefixMemo(path[0].size_bytes * 10)
    memo.keep(path[-1])
    memo.check_integrity()
    assert memo.deepest(keys_of(path)) is path[9]


def test_a_memo_of_no_bytes_remembers_nothing() -> None:
    """Which is how it is turned off."""
    memo = PrefixMemo(0)
    memo.keep(build_path("a")[-1])
    assert len(memo) == memo.held_bytes == 0


def test_broken_books_are_found() -> None:
    """The integrity check can fail."""
    memo = PrefixMemo(10**6)
    memo.keep(build_path("a", "b")[-1])
    memo.held_bytes -= 1
    with pytest.raises(AssertionError, match="memo"):
        memo.check_integrity()


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=6), max_size=40), st.integers(0, 20))
def test_any_use_leaves_the_memo_whole(uses: list[list[str]], room: int) -> None:
    """Sizes add up, the bound holds, and no node outlives its parent."""
    memo = PrefixMemo(room * (NODE_BYTES + 60))
    for names in uses:
        path = build_path(*names)
        found = memo.deepest(keys_of(path))
        start = 0 if found is None else keys_of(path).index(found.key) + 1
        node = found
        for step in path[start:]:
            node = Node(step.key, node, step.blocks, step.last, step.tail, step.tokens)
        assert node is not None
        memo.keep(node)
        memo.check_integrity()


def test_threads_with_a_lock_do_not_break_it() -> None:
    """Look-ups, insertions and evictions from four threads at once."""
    memo = PrefixMemo(40 * (NODE_BYTES + 60), threading.Lock())
    failures: list[BaseException] = []

    def use(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(2000):
                path = build_path(*(chance.choice("abcd") for _ in range(chance.randint(1, 8))))
                memo.deepest(keys_of(path))
                memo.keep(path[-1])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    memo.check_integrity()


def test_a_very_long_conversation_is_let_go_without_recursion() -> None:
    """A hundred thousand nodes behind each other are freed like any other."""
    node: Node | None = None
    path = []
    for number in range(100_000):
        node = Node(number.to_bytes(4, "big"), node, (), b"", b"", 0)
        path.append(node.key)
    memo = PrefixMemo(10**9)
    assert node is not None
    memo.keep(node)
    del node
    memo.bound_bytes = 0
    memo.keep(Node(b"x", None, (), b"", b"", 0))
    assert len(memo) == 0
    assert all(earlier < later for earlier, later in pairwise(path))
