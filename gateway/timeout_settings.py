"""Settings of time and size on the way from a client's connection to the end of its answer."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from gateway.settings_base import Count, Seconds, Section


class Timeouts(Section, frozen=True):
    """How long each phase of a request may take. No total: a stream may last as long as it moves."""

    keep_alive_seconds: Annotated[
        Seconds, Meta(description="How long a client's connection is kept without a request; longer than its own pool "
                      "keeps it, or it may ask just as it is closed."),
    ] = 75.0  # fmt: skip
    header_seconds: Annotated[
        Seconds, Meta(description="From a connection's beginning, or a request's first byte, until its head is whole."),
    ] = 10.0  # fmt: skip
    body_seconds: Annotated[
        Seconds, Meta(description="For a request's body; it may take longer while it brings 1 KiB a second on average.")
    ] = 30.0
    write_seconds: Annotated[
        Seconds, Meta(description="How long a client may leave what was sent to it unread before it is given up.")
    ] = 60.0
    connect_seconds: Annotated[Seconds, Meta(description="Until a worker accepts the connection.")] = 1.0
    first_byte_seconds: Annotated[
        Seconds,
        Meta(description="Until a worker sends the first byte of a streamed answer: its queue and its prefill."),
    ] = 60.0
    whole_answer_seconds: Annotated[
        Seconds,
        Meta(description="The same for an answer that is not streamed, which a worker sends when it is complete."),
    ] = 600.0
    idle_seconds: Annotated[Seconds, Meta(description="Between two pieces of a worker's answer.")] = 30.0
    hold_seconds: Annotated[
        Annotated[float, Meta(ge=0)],
        Meta(description="How long a request waits for a first worker while no worker of its model is up, as where the "
             "first request starts one; 0 answers 503 at once."),
    ] = 0.0  # fmt: skip
    queue_seconds: Annotated[
        Annotated[float, Meta(ge=0)],
        Meta(description="How long a request may wait for room when every worker has its max_in_flight; 0 refuses it."),
    ] = 5.0
    stream_heartbeat_seconds: Annotated[
        Seconds | None,
        Meta(description="A heartbeat this often before the first byte of a stream, so that nobody on the way takes it "
             "for dead; the first sends the head, and what fails after it is told in the stream. None by default."),
    ] = None  # fmt: skip
    drain_delay_seconds: Annotated[
        Annotated[float, Meta(ge=0)],
        Meta(description="After SIGTERM: how long to go on accepting while /readyz already says no."),
    ] = 5.0
    drain_seconds: Annotated[
        Seconds, Meta(description="After that: how long open requests may take to end; the longest stream you serve.")
    ] = 300.0


class Limits(Section, frozen=True):
    """Bounds on what clients may bring."""

    body_bytes: Annotated[Count, Meta(description="Largest request body, decoded.")] = 32 * 1024 * 1024
    connections: Annotated[
        Count,
        Meta(description="Most connections of clients; over it the one that idles longest is closed. Never more than "
             "the process's open files allow, a request under way taking two."),
    ] = 100_000  # fmt: skip
