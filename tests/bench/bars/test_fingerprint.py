"""What the simulator does, as one word."""

from bench.bars import fingerprint
from bench.bars.fingerprint import simulator_fingerprint
from router.replay.engine_a import PrefillThenDecode


def test_the_word_is_the_same_each_time():
    """It depends on nothing but the simulator."""
    first = simulator_fingerprint()
    simulator_fingerprint.cache_clear()
    assert simulator_fingerprint() == first


def test_another_behaviour_is_another_word(monkeypatch):
    """Work ahead that is reckoned a tenth longer is enough."""
    first = simulator_fingerprint()
    simulator_fingerprint.cache_clear()
    plain = PrefillThenDecode.work_seconds
    monkeypatch.setattr(PrefillThenDecode, "work_seconds", lambda worker, now: plain(worker, now) * 1.1)
    assert simulator_fingerprint() != first
    fingerprint.simulator_fingerprint.cache_clear()
