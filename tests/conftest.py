"""Settings of every test run."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("homing", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("homing")
