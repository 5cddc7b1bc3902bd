"""Settings of what happens when workers fail: how long one is left out, how often others are tried, quarantine."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from gateway.settings_base import Seconds, Section

Share = Annotated[float, Meta(ge=0, le=1)]


class Faults(Section, frozen=True):
    """What happens when workers fail (docs/operations.md)."""

    attempts: Annotated[
        Annotated[int, Meta(ge=1, le=10)],
        Meta(description="Most workers that one request is sent to. At most two of them can have begun it."),
    ] = 3
    retry_share: Annotated[
        Share,
        Meta(
            description="Most retries as a share of the requests of the last 10 s (at least 3), where no worker is "
            "known to be well; one that is well is asked in any case."
        ),
    ] = 0.15
    ejection_seconds: Annotated[
        Seconds,
        Meta(
            description="How long a worker is left out whose trials said that it is well when it was not; doubled each "
            "time. Others are back with the first good trial."
        ),
    ] = 1.0
    most_ejection_seconds: Annotated[Seconds, Meta(description="The longest of these times.")] = 60.0
    ejected_share: Annotated[
        Share,
        Meta(
            description="When more than this share of a model's workers is out or down, requests go to all that are "
            "not known to be dead."
        ),
    ] = 0.5
    slow_start_seconds: Annotated[
        Annotated[float, Meta(ge=0)],
        Meta(
            description="In how much time a worker that comes back gets its `max_in_flight` again, from one request "
            "on; without that bound there is nothing to grow."
        ),
    ] = 5.0
    cancels_per_second: Annotated[
        Annotated[float, Meta(gt=0, le=1000)] | None,
        Meta(
            description="For engines that may crash of a cancel: at most so many requests a second are given up at one "
            "worker when their clients leave, the first at one worker after another, and none for a minute after two "
            "have died of one; the others run on, unread and no longer counted as in flight. By default all are given "
            "up at once."
        ),
    ] = None
    quarantine_seconds: Annotated[
        Annotated[float, Meta(ge=0)],
        Meta(description="How long a prompt is refused that two workers died of."),
    ] = 60.0
