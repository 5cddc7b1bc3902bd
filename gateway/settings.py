"""Every setting, typed: name, type, default, bounds and sentence. Validation, schema and docs derive from these."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, field

from gateway.fault_settings import Faults
from gateway.placement_settings import EventSettings, PolicySettings
from gateway.settings_base import Count, Port, Seconds, Section
from gateway.tenant_settings import TenantSettings as TenantSettings
from gateway.timeout_settings import Limits as Limits
from gateway.timeout_settings import Timeouts as Timeouts


class Listen(Section, frozen=True):
    """Where the gateway listens."""

    host: Annotated[str, Meta(description="Address of the API; 0.0.0.0 for every interface.")] = "127.0.0.1"
    port: Annotated[Port, Meta(description="Port of the API; 0 takes a free one.")] = 8080
    admin_host: Annotated[
        str, Meta(description="Address of the admin port, which asks for nothing unless there is an admin_token.")
    ] = "127.0.0.1"
    admin_port: Annotated[
        Port, Meta(description="Port of /livez, /readyz, /metrics, /config, /explain and /workers; 0 is a free one.")
    ] = 9090
    admin_changes: Annotated[
        bool,
        Meta(description="Lets whoever reaches the admin port add, drain and remove workers (docs/operations.md)."),
    ] = False
    admin_token: Annotated[
        str | None,
        Meta(
            description="What the admin port asks for as `Authorization: Bearer` on all but /livez, /readyz and "
            "/metrics: file:PATH or env:NAME, at least 32 characters."
        ),
    ] = None
    worker_networks: Annotated[
        list[str],
        Meta(
            description="Networks (10.0.0.0/8) in which workers that are added over the admin port must be; by default "
            "any but link-local, where metadata services are."
        ),
    ] = field(default_factory=list)


class StaticBackend(Section, frozen=True):
    """A worker with more to say than its URL."""

    url: Annotated[str, Meta(description="http://HOST:PORT of a worker, with a path before /v1 if it has one.")]
    name: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:/\[\]-]{1,128}$")] | None,
        Meta(description="Name on the ring and in metrics; HOST:PORT by default. Keep it when the address changes."),
    ] = None
    weight: Annotated[
        Annotated[int, Meta(ge=1, le=100)], Meta(description="Share of the ring: 2 is home to twice the prompts of 1.")
    ] = 1
    max_in_flight: Annotated[
        Count | None, Meta(description="Most requests at this worker at a time; by default the model's bound.")
    ] = None
    api_key: Annotated[
        str | None, Meta(description="Key the worker asks for: env:NAME or file:PATH, never the key itself.")
    ] = None


class Backends(Section, frozen=True):
    """How the workers of a model are found."""

    static: Annotated[
        list[str | StaticBackend],
        Meta(min_length=1, description="Workers by URL, or by a mapping with url and more."),
    ]


class Model(Section, frozen=True):
    """One model and who serves it. The name `*` stands for every model that its workers list."""

    backends: Annotated[Backends, Meta(description="Where the model's workers are.")]
    tokenizer: Annotated[
        str | None,
        Meta(
            description="A tokenizer.json, a Hugging Face folder or a GGUF file; by default the folder that the "
            "worker names, if it is here too, else bytes."
        ),
    ] = None
    worker_block_tokens: Annotated[
        Count | None, Meta(description="The workers' cache block in tokens; by default what they report, else 16.")
    ] = None
    adapters: Annotated[
        list[str], Meta(description="LoRA adapters of this model that tenants may be given by name.")
    ] = field(default_factory=list)
    policy: Annotated[
        str | PolicySettings,
        Meta(description="How a worker is chosen: a policy's name, or a mapping with its numbers."),
    ] = "homing"
    events: Annotated[
        bool | Literal["auto", "off"] | EventSettings,
        Meta(description="Whether to follow the workers' KV events: auto (where a worker says that it publishes some), "
             "off, or a mapping that says where."),
    ] = "auto"  # fmt: skip
    max_in_flight: Annotated[
        Count | None, Meta(description="Most requests at one worker at a time; no bound by default.")
    ] = None
    salts_messages: Annotated[
        bool,
        Meta(description="Whether the workers heed `cache_salt` on /v1/messages. vLLM up to 0.32 does not: tenants "
             "whose caches are kept apart are refused there, lest they share one; `isolation: shared` is not."),
    ] = False  # fmt: skip
    prefill_tokens_per_second: Annotated[
        Annotated[float, Meta(gt=0)] | None,
        Meta(description="Where learning a worker's prefill speed starts; it is measured from then on."),
    ] = None
    prefill_fixed_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        Meta(description="Where learning a prefill's fixed cost starts."),
    ] = None


class Probes(Section, frozen=True):
    """How workers are watched."""

    interval_seconds: Annotated[
        Seconds, Meta(description="Between two looks at a worker (a tenth sooner or later, so they do not march).")
    ] = 1.0
    timeout_seconds: Annotated[Seconds, Meta(description="How long a worker may take to answer a probe.")] = 2.0
    start_seconds: Annotated[
        Seconds, Meta(description="At start: how long /readyz waits for every worker's first probe.")
    ] = 10.0


class Prewarm(Section, frozen=True):
    """What is brought to a worker's cache before anybody asks (docs/operations.md)."""

    enabled: Annotated[
        bool, Meta(description="Keep recent prompts in memory, and fill the caches of workers that join with them.")
    ] = True
    budget_seconds: Annotated[
        Annotated[float, Meta(ge=0)],
        Meta(description="Most seconds of prefill that this gateway spends on one worker's warm-up; pulls cost none."),
    ] = 30.0
    deadline_seconds: Annotated[
        Seconds, Meta(description="When a warm-up ends at the latest, and a draining worker's prefixes have moved.")
    ] = 120.0
    concurrency: Annotated[
        Annotated[int, Meta(ge=1, le=4)], Meta(description="Prompts on their way to one worker at a time.")
    ] = 1
    store_bytes: Annotated[Count, Meta(description="Most memory for recent prompts.")] = 64 * 1024 * 1024
    store_prompts: Annotated[Count, Meta(description="Most recent prompts.")] = 4096
    store_seconds: Annotated[Seconds, Meta(description="How long a prompt is kept after it was last asked.")] = 900.0


class Log(Section, frozen=True):
    """What is written to standard error."""

    level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="Least severity written.")] = "info"
    format: Annotated[
        Literal["auto", "json", "text"],
        Meta(description="json lines, text (key=value), or auto: text on a terminal."),
    ] = "auto"
    request_share: Annotated[
        Annotated[float, Meta(ge=0, le=1)],
        Meta(description="Share of well-answered requests that get a line; others always get theirs."),
    ] = 1.0
    decision_share: Annotated[
        Annotated[float, Meta(ge=0, le=1)],
        Meta(
            description="Share of placements that get a line with every candidate's numbers: names and hashes, no text."
        ),
    ] = 0.0


class Record(Section, frozen=True):
    """What is written down for `homing replay`: times, lengths and salted block hashes, never text."""

    path: Annotated[
        str,
        Meta(
            min_length=1,
            description="File to write, gzipped if it ends in .gz; each gateway needs its own. What a start or a full "
            "file finds there is moved to PATH.1 and so on.",
        ),
    ]
    sample: Annotated[
        Annotated[float, Meta(gt=0, le=1)],
        Meta(description="Share of the traffic to record, by families of prompts that have a beginning in common."),
    ] = 1.0
    file_bytes: Annotated[Annotated[int, Meta(ge=4096)], Meta(description="About how large a file gets.")] = 256 * 2**20
    files: Annotated[
        Annotated[int, Meta(ge=1, le=1000)],
        Meta(description="How many files are kept, the one being written included."),
    ] = 4


class Redis(Section, frozen=True):
    """The Redis through which the replicas of a gateway act as one. It may go away: no request waits for it."""

    url: Annotated[
        str,
        Meta(description="redis://HOST:PORT, rediss:// (TLS) or unix:///PATH; one with a password as env:NAME or "
             "file:PATH."),
    ]  # fmt: skip
    name: Annotated[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]{1,64}$")],
        Meta(description="Before every key in Redis; fleets that share one Redis need different ones."),
    ] = "homing"
    stream_bytes: Annotated[
        Annotated[int, Meta(ge=2**20)],
        Meta(description="About how much news Redis keeps for replicas that join: 16 bytes for each new block of 64 "
             "tokens or more."),
    ] = 32 * 2**20  # fmt: skip
    start_seconds: Annotated[
        Seconds, Meta(description="At start: how long /readyz waits until the others' news has been read.")
    ] = 3.0


class Config(Section, frozen=True, kw_only=True):
    """The whole file."""

    listen: Listen = field(default_factory=Listen)
    models: Annotated[
        dict[str, Model], Meta(min_length=1, description="Models by the name that workers list and clients ask for.")
    ]
    tenants: Annotated[dict[str, TenantSettings], Meta(min_length=1, description="Tenants by name.")]
    revoked_keys: Annotated[
        str | None,
        Meta(description="file:PATH of the list that `homing keys revoke` adds to; heeded within seconds."),
    ] = None
    salt_secrets: Annotated[
        dict[str, str],
        Meta(
            description="Secrets of at least 32 random bytes that cache salts derive from: {id: file:PATH | env:NAME}."
        ),
    ] = field(default_factory=dict)
    salt_secret: Annotated[
        str | None,
        Meta(description="The id in use; may be left out when there is one. Changing it empties every tenant's cache."),
    ] = None
    timeouts: Timeouts = field(default_factory=Timeouts)
    limits: Limits = field(default_factory=Limits)
    probes: Probes = field(default_factory=Probes)
    faults: Faults = field(default_factory=Faults)
    prewarm: Prewarm = field(default_factory=Prewarm)
    log: Log = field(default_factory=Log)
    redis: Annotated[
        Redis | None, Meta(description="Lets replicas tell each other what they do; each goes by its own without it.")
    ] = None
    record: Annotated[
        Record | None, Meta(description="Records traffic for `homing replay`; nothing is recorded without it.")
    ] = None
