"""Peers that hash onto a ring: who is the owner, and when it is passed over."""

from bench.peers.hash_ring import HashRing
from bench.peers.rings import EnvoyBounded, KubeAI, PrefixHash, SessionRing
from bench.peers.routing_keys import common_blocks, first_own_blocks, session_keys
from tests.bench.peers.builders import Fleet, build_request, build_trace, load_up

SETTINGS = Fleet().settings
KEYS = [f"key-{number}".encode() for number in range(200)]


def test_only_keys_of_a_worker_that_left_change_owner():
    """What a ring is for."""
    ring = HashRing(160)
    before = {key: ring.owner(key, [0, 1, 2]) for key in KEYS}
    after = {key: ring.owner(key, [0, 1]) for key in KEYS}
    assert all(after[key] == owner for key, owner in before.items() if owner != 2)
    assert set(before.values()) == {0, 1, 2}


def test_a_session_ring_looks_at_no_load():
    """The owner gets it, however busy."""
    peer = SessionRing(SETTINGS, KEYS)
    owner = peer.choose(build_request("a", 7), 0.0, Fleet())
    load_up(peer, owner, 1000)
    assert peer.choose(build_request("a", 7), 0.0, Fleet()) == owner


def test_kubeai_walks_on_from_an_owner_over_its_bound():
    """1.25 of the mean; the next on the ring takes it, the same one each time."""
    peer = KubeAI(SETTINGS, KEYS)
    owner = peer.choose(build_request("a", 7), 0.0, Fleet())
    load_up(peer, owner, 4)
    chosen = {peer.choose(build_request("a", 7), 0.0, Fleet()) for _ in range(2)}
    assert chosen == {list(HashRing(KubeAI.POINTS).walk(KEYS[7], [0, 1, 2]))[1]}


def test_envoy_overflows_in_an_order_of_the_keys_own():
    """The same key goes to the same second worker; two keys of one owner may go to different ones."""
    peer = EnvoyBounded(SETTINGS, KEYS)
    owned = [number for number in range(200) if peer._ring.owner(KEYS[number], [0, 1, 2]) == 0]
    load_up(peer, 0, 50)
    seconds = {number: peer.pick(build_request("a", number), 0.0, Fleet()) for number in owned}
    assert set(seconds.values()) == {1, 2}
    assert all(peer.pick(build_request("a", number), 0.0, Fleet()) == second for number, second in seconds.items())


def test_envoy_with_everybody_full_takes_the_least_busy():
    """Bounds of one slot each, all over it."""
    peer = EnvoyBounded(SETTINGS, KEYS)
    for worker, load in ((0, 9), (1, 8), (2, 30)):
        load_up(peer, worker, load)
    peer.FACTOR_PERCENT = 1
    assert peer.pick(build_request("a", 3), 0.0, Fleet()) == 1


def test_prefix_hash_tells_apart_only_by_the_first_block():
    """256 tokens lie in one block; what follows does not matter."""
    peer = PrefixHash(SETTINGS)
    assert len({peer.pick(build_request(f"a{second}"), 0.0, Fleet()) for second in "bcdefghijk"}) == 1


def test_prefix_hash_asks_the_deepest_boundary_first():
    """With boundaries of one and four blocks, prompts that differ in the fourth have owners of their own."""
    peer = PrefixHash(SETTINGS, depths_tokens=(512, 2048))
    assert {peer.pick(build_request(f"abc{fourth}"), 0.0, Fleet()) for fourth in "defghijklm"} == {0, 1, 2}


def test_prefix_hash_passes_over_an_owner_ten_above_the_mean():
    """The margin of ten counts while the relative bound is tighter."""
    peer = PrefixHash(SETTINGS)
    owner = peer.pick(build_request("a"), 0.0, Fleet())
    load_up(peer, owner, 12)
    assert peer.pick(build_request("a"), 0.0, Fleet()) == owner
    load_up(peer, owner, 10)
    assert peer.pick(build_request("a"), 0.0, Fleet()) != owner


def test_the_first_own_block_is_where_common_property_ends():
    """A head in every prompt is passed over, with sessions and without."""
    prompts = ["h" + chr(97 + number // 2) + "x" * 3 for number in range(12)]
    keys = first_own_blocks(build_trace(prompts, closed_loop=True, sessions=[number // 2 for number in range(12)]))
    assert keys[0] == keys[1] == b"ha"
    assert len(set(keys)) == 6
    many = build_trace([f"h{number:03d}" for number in range(400)])
    assert first_own_blocks(many)[0] == b"h000"
    assert b"h" in common_blocks(many)
    assert b"h000" not in common_blocks(many)


def test_sessions_are_the_traces_own_where_it_has_them():
    """Otherwise the first own block stands for one."""
    closed = build_trace(["ab", "cd"], closed_loop=True, sessions=[5, 5])
    assert session_keys(closed)[0] == session_keys(closed)[1] == b"session-5"
    assert len(set(session_keys(build_trace(["ab", "cd"])))) == 2
