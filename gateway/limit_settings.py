"""Settings of what a tenant may take: limits by the minute, a budget, and its place in the line when all is full."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from gateway.settings_base import Count, Section

WhenRedisIsAway = Literal["local", "open", "closed"]
WhenSpent = Literal["reject", "deprioritise", "warn"]
Priority = Literal["low", "normal", "high"]

PRIORITY_FACTORS: Final[dict[str, float]] = {"low": 0.25, "normal": 1.0, "high": 4.0}

_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class TenantLimits(Section, frozen=True):
    """Bounds on what a tenant takes; what is left out has none (docs/limits.md)."""

    tokens_per_minute: Annotated[
        Count | None,
        Meta(
            description="Prompt and answer tokens a minute, as workers report them; a minute's worth may come at once."
        ),
    ] = None
    requests_per_minute: Annotated[
        Count | None, Meta(description="Requests a minute; a minute's worth may come at once.")
    ] = None
    concurrency: Annotated[Count | None, Meta(description="Requests under way at a time.")] = None
    max_output_tokens: Annotated[
        Count | None,
        Meta(description="Longest answer. Who asks for more is refused; who does not say gets it as `max_tokens`."),
    ] = None
    enforce: Annotated[
        bool, Meta(description="false only counts what would be refused, in `homing_limit_rejections_total`.")
    ] = True
    when_redis_is_away: Annotated[
        WhenRedisIsAway,
        Meta(description="local (each gateway allows its share), open (everything passes) or closed (503)."),
    ] = "local"


class TenantBudget(Section, frozen=True):
    """Tokens for a longer time. Without Redis a restart forgets what was spent."""

    tokens: Annotated[Count, Meta(description="Prompt and answer tokens in each period.")]
    every: Annotated[
        Annotated[str, Meta(pattern=r"^[1-9][0-9]{0,4}[smhd]$")],
        Meta(description="How long a period lasts, from its first request on: 30d, 12h, 90m, 600s."),
    ] = "30d"
    when_spent: Annotated[
        WhenSpent,
        Meta(description="reject (429 insufficient_quota), deprioritise (last in the line when all is full) or warn."),
    ] = "reject"

    @property
    def every_seconds(self) -> float:
        """The period in seconds."""
        return float(int(self.every[:-1]) * _UNIT_SECONDS[self.every[-1]])
