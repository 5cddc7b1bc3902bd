"""The chain book: only new blocks travel, and everybody who read two epochs can put chains together again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.shared.chain_book import STRIDE, ChainBook
from tests.gateway.shared.builders import build_chain

prompts = st.lists(
    st.builds(lambda head, tail: [0] * head + tail, st.integers(0, 18), st.lists(st.integers(0, 2), max_size=6)),
    min_size=1,
    max_size=30,
)


def tell(teller: ChainBook, chain: list[bytes]) -> tuple[bytes | None, list[bytes]]:
    """What travels of a chain: the last block that everybody knows, and those after it."""
    known = teller.known_blocks(chain)
    return (chain[known - 1] if known else None), chain[known:]


def test_a_chain_is_told_whole_once():
    """The second turn of a conversation brings its new blocks only, behind the last known one."""
    book = ChainBook(100)
    first, second = build_chain(1, 2, 3), build_chain(1, 2, 3, 4, 5)
    assert book.hear(*tell(book, first)) == first
    known, new = tell(book, second)
    assert (known, new) == (first[-1], second[3:])
    assert book.hear(known, new) == second


def test_a_chain_that_leaves_in_the_middle_is_put_together():
    """Another conversation behind the same head refers to the head's last eighth, in the middle of what was told."""
    book = ChainBook(100)
    book.hear(None, build_chain(*range(20)))
    other = build_chain(*range(18), 99, 99)
    known, new = tell(book, other)
    assert known == build_chain(*range(2 * STRIDE))[-1]
    assert book.hear(known, new) == other


@given(st.integers(0, 40), st.integers(0, 40), st.integers(1, 10))
def test_at_most_seven_known_blocks_are_told_again(first, shared, more):
    """Where chains part; where one goes on after another's end, none."""
    book = ChainBook(1000)
    book.hear(None, build_chain(*range(first)))
    same = min(first, shared)
    other = build_chain(*range(same), *[999] * more)
    known = book.known_blocks(other)
    assert known == same if same == first else same - STRIDE < known <= same
    told = tell(book, other)
    assert book.hear(*told) == other
    assert book.known_blocks(other) == len(other)
    book.check_integrity()


def test_what_was_never_heard_of_cannot_be_followed():
    """None, and nothing is kept of it."""
    book = ChainBook(100)
    assert book.hear(b"?" * 16, build_chain(1)) is None
    assert len(book) == 0


@given(prompts)
def test_whoever_hears_everything_rebuilds_everything(chains):
    """For any traffic: every chain comes out whole at a listener, and the books stay sound."""
    teller, listener = ChainBook(1000), ChainBook(1000)
    for tokens in chains:
        chain = build_chain(*tokens)
        told = tell(teller, chain)
        assert teller.hear(*told) == chain
        assert listener.hear(*told) == chain
        teller.check_integrity()
    listener.check_integrity()


@given(prompts, st.integers(1, 8), st.data())
def test_a_joiner_that_reads_from_the_turn_before_last_rebuilds_everything(chains, epoch_length, data):
    """Batches carry the epoch; who starts at any turn knows every reference from the next turn on."""
    teller, stream = ChainBook(1000), []
    for number, tokens in enumerate(chains):
        epoch = number // epoch_length
        # The batch that begins an epoch was made in the one before, as it is with several replicas.
        told = tell(teller, build_chain(*tokens))
        teller.turn(epoch)
        stream.append((epoch, told, build_chain(*tokens)))
        teller.hear(*told)
        teller.check_integrity()
    first = data.draw(st.integers(0, stream[-1][0]))
    joiner = ChainBook(1000)
    for epoch, told, chain in stream:
        if epoch < first:
            continue
        joiner.turn(epoch)
        found = joiner.hear(*told)
        assert found in (None, chain)
        if first == 0 or epoch > first + 1:
            assert found == chain
        joiner.check_integrity()


def test_after_two_turns_a_chain_is_told_again():
    """What a joiner can no longer read is not referred to."""
    book = ChainBook(100)
    chain = build_chain(1, 2, 3)
    book.hear(None, chain)
    assert book.known_blocks(chain) == 3
    book.turn(1)
    assert book.known_blocks(chain) == 0
    assert book.hear(chain[-1], ()) == chain
    book.turn(2)
    assert book.hear(chain[-1], ()) is None


def test_an_epoch_never_turns_back():
    """A late batch of an old epoch changes nothing; one far ahead empties both halves."""
    book = ChainBook(100)
    book.turn(5)
    book.hear(None, build_chain(1))
    book.turn(4)
    assert (book.epoch, len(book)) == (5, 1)
    book.turn(9)
    assert book.hear(build_chain(1)[0], ()) is None


def test_the_book_is_bounded():
    """What does not fit is heard and not kept; half full is time to turn."""
    book = ChainBook(2)
    for number in range(5):
        assert book.hear(None, build_chain(number)) == build_chain(number)
        assert book.full
    assert len(book) == 2
    book.check_integrity()
