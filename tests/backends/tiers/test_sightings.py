"""How often a content was asked for again."""

from __future__ import annotations

from backends.tiers.sightings import Sightings


def test_being_computed_the_first_time_is_no_hit():
    """Being computed again would have been one."""
    sightings = Sightings()
    sightings.computed(b"a")
    assert sightings.hits(b"a") == 0
    sightings.computed(b"a")
    sightings.hit(b"a")
    assert sightings.hits(b"a") == 2


def test_what_was_never_computed_is_not_counted():
    """A hit on a block from before a restart of the count."""
    sightings = Sightings()
    sightings.hit(b"a")
    assert sightings.hits(b"a") == 0


def test_the_names_not_seen_for_longest_are_forgotten():
    """The memory for it is bounded."""
    sightings = Sightings(most_names=2)
    for name in (b"a", b"b"):
        sightings.computed(name)
        sightings.hit(name)
    sightings.hit(b"a")
    sightings.computed(b"c")
    assert [sightings.hits(name) for name in (b"a", b"b", b"c")] == [2, 0, 0]
