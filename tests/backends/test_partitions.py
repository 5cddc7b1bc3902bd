"""How partitions are written: `name=floor:ceiling`, and a sentence for what cannot be."""

from __future__ import annotations

import pytest

from backends.partitions import NO_PARTITIONS, Partitions, PartitionShare


def test_shares_are_read_in_order():
    """Several options make several partitions."""
    partitions = Partitions.parse(["support=0.3:0.6", "batch=0:1"])
    assert partitions.shares == (PartitionShare("support", 0.3, 0.6), PartitionShare("batch", 0.0, 1.0))


def test_the_unnamed_partition_is_always_there():
    """Requests that name none need no option."""
    assert NO_PARTITIONS.names == ("",)
    assert Partitions.parse(["support=0.3:0.6"]).names == ("", "support")


def test_floors_may_add_up_to_the_whole_pool():
    """Also where their binary fractions do not quite."""
    assert len(Partitions.parse([f"p{number}=0.1:1" for number in range(10)]).shares) == 10


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["support"], "write name=floor:ceiling"),
        (["support=0.3"], "write name=floor:ceiling"),
        (["support=a:b"], "write name=floor:ceiling"),
        (["support:0.3=0.6"], "write name=floor:ceiling"),
        (["=0.3:0.6"], "needs a name"),
        ([" support=0.3:0.6"], "needs a name"),
        (["support=0.6:0.3"], "the floor is above the ceiling"),
        (["support=-0.1:0.3"], "from 0 to 1"),
        (["support=0:1.1"], "from 0 to 1"),
        (["support=0:0"], "the ceiling above 0"),
        (["support=nan:0.5"], "from 0 to 1"),
        (["support=0.1:inf"], "from 0 to 1"),
        (["a=0.3:0.6", "a=0.1:0.6"], "'a' is given more than once"),
        (["a=0.6:0.6", "b=0.6:0.6"], "add up to 1.2, more than the whole pool"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(texts, complaint):
    """The message quotes what was written and says what is wrong with it."""
    with pytest.raises(ValueError, match=complaint):
        Partitions.parse(texts)
