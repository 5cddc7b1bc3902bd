"""Which kernels run on which device."""

from __future__ import annotations

import logging
import sys

import pytest

from backends.kernels.choose import choose_kernels


def test_a_gpu_gets_triton():
    """Whatever compiler this machine has."""
    pytest.importorskip("triton")
    assert choose_kernels("cuda").name == "triton"


def test_a_gpu_without_triton_gets_the_reference_and_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """Torch alone is right, and slow."""
    monkeypatch.setitem(sys.modules, "backends.kernels.triton_paged", None)
    with caplog.at_level(logging.WARNING):
        assert choose_kernels("cuda").name == "reference"
    assert "Triton is not installed" in caplog.text
