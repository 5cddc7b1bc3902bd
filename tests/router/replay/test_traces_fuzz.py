"""Whatever stands in a trace file, reading it gives a trace or a TraceError."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.replay.core import Trace
from router.replay.traces import TraceError, load_trace
from tests.router.replay.trace_builders import range_row, session_rows, write_ragpulse

RECORDED = {
    "at": 1.0, "model": "m", "worker": "w1", "code": 200, "tokens": 100, "output": 3, "ttft": 0.5, "total": 1.0,
    "cached": 0, "block_tokens": 64, "after": "", "exact": ["a"], "key_after": "a", "key": ["b"],
}  # fmt: skip
FILES: dict[str, list[dict[str, Any]]] = {
    "ranges": [range_row(0), range_row(1)],
    "published": [{"timestamp": n, "input_length": 600, "output_length": 1, "hash_ids": [0, n]} for n in range(2)],
    "sessions": session_rows("a", (0, [[1, 8]]), (5, [[1, 16]]), tools=64),
    "recorded": [{"homing_recording": 1, "at": 1.0, "sample": 0.5}, RECORDED, RECORDED],
    "ragpulse": [
        {"timestamp": "1", "output_length": 3, "session_id": "s", "hash_ids": {"sys_prompt": [1], "history": []}}
    ],
}
BIG = [10**400, float("inf"), float("-inf"), float("nan"), -1, 0, 1e300, 10**9]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(BIG) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_field_may_hold_anything(tmp_path: Path, name: str, data: st.DataObject):
    """One field of one line is replaced or taken away."""
    rows = json.loads(json.dumps(FILES[name]))
    row = rows[data.draw(st.integers(0, len(rows) - 1))]
    field = data.draw(st.sampled_from(sorted(row)))
    if data.draw(st.booleans()):
        row[field] = data.draw(values)
    else:
        del row[field]
    with suppress(TraceError):
        assert isinstance(load_trace(write_ragpulse(tmp_path, rows, {"sys_prompt": {1: 70}})), Trace)


@given(data=st.binary(max_size=60) | st.text(alphabet='{}[]",:ex01\n', max_size=60).map(str.encode))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_may_hold_anything(tmp_path: Path, data: bytes):
    """Bytes, packed or not, and what looks like JSON."""
    for head in (b"", b"\x1f\x8b", b"\x1f\x8b\x08\0\0\0\0\0\0\0"):
        (tmp_path / "t").write_bytes(head + data)
        with pytest.raises(TraceError):
            load_trace(tmp_path / "t")
