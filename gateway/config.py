"""Loading the configuration: whole and checked, or a `ConfigError` that says where and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gateway.config_checks import Secrets, find_mistakes
from gateway.config_convert import convert
from gateway.config_source import ConfigError, Source, read_yaml
from gateway.mistakes import Mistake
from gateway.settings import Backends, Config, Listen, Model, TenantSettings, Timeouts
from gateway.worker_state import ANY_MODEL

__all__ = ["Config", "ConfigError", "Secrets", "check_config", "config_for_workers", "load_config", "load_secrets"]

LOCAL_TENANT = "local"
"""The one tenant of `homing serve --worker URL`."""


def load_config(path: Path, environ: Mapping[str, str]) -> Config:
    """Read, type and check a YAML file, the secrets it refers to included.

    Raises `ConfigError` with the JSON path, the line, what is wrong and what would be right; when several things
    are, the error's `others` has the rest.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        hint = "say where it is with --config FILE or $HOMING_CONFIG"
        raise ConfigError(f"cannot be read: {error.strerror or error}", file=str(path), hint=hint) from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"is not UTF-8 text at byte {error.start}", file=str(path)) from None
    source = read_yaml(text, str(path))
    config = convert(source)
    _raise_any(find_mistakes(config, environ, Secrets()), source)
    return config


def config_for_workers(urls: Sequence[str], listen: Listen | None = None) -> Config:
    """The configuration of a first try: these workers, whatever models they list, one open tenant, loopback only.

    Raises `ConfigError` when a URL cannot be a worker's or `listen` is not on loopback.
    """
    config = Config(
        listen=listen or Listen(),
        timeouts=Timeouts(drain_delay_seconds=0.0),
        models={ANY_MODEL: Model(backends=Backends(static=list(dict.fromkeys(urls))))},
        tenants={LOCAL_TENANT: TenantSettings(open=True, isolation="shared")},
    )
    check_config(config, {})
    return config


def check_config(config: Config, environ: Mapping[str, str]) -> None:
    """Check a configuration that did not come from a file, or was changed since; raises `ConfigError`."""
    load_secrets(config, environ)


def load_secrets(config: Config, environ: Mapping[str, str]) -> Secrets:
    """Read every secret that a configuration refers to; `ConfigError` when one has gone since it was loaded."""
    secrets = Secrets()
    _raise_any(find_mistakes(config, environ, secrets), Source(None, None, None))
    return secrets


def _raise_any(mistakes: Iterable[Mistake], source: Source) -> None:
    errors = [source.error(mistake.what, mistake.path, mistake.hint) for mistake in mistakes]
    if errors:
        errors[0].others = tuple(errors[1:])
        raise errors[0]
