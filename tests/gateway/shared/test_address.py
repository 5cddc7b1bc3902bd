"""Where Redis is: what may stand in the configuration, and what must not."""

from __future__ import annotations

import pytest

from gateway.config import ConfigError, load_config, load_secrets
from gateway.secrets import SecretError
from gateway.shared.address import read_redis_url
from tests.gateway.builders import ENVIRON, write_config_data

PASSWORD = "hunter2-canary"


@pytest.mark.parametrize(
    "url", ["redis://redis:6379", "redis://127.0.0.1:6379/3", "rediss://cache.example:6380", "unix:///run/redis.sock"]
)
def test_a_url_without_a_password_stands_in_the_file(url):
    """As it is."""
    assert read_redis_url(url, {}) == url


def test_a_url_with_a_password_comes_from_the_environment_or_a_file(tmp_path):
    """A line end does not belong to it."""
    url = f"redis://:{PASSWORD}@redis:6379"
    (tmp_path / "url").write_text(url + "\n")
    assert read_redis_url("env:REDIS_URL", {"REDIS_URL": url}) == url
    assert read_redis_url(f"file:{tmp_path / 'url'}", {}) == url


@pytest.mark.parametrize(
    ("setting", "environ", "what"),
    [
        (f"redis://:{PASSWORD}@redis:6379", {}, "env:NAME or file:PATH"),
        ("env:REDIS_URL", {}, "REDIS_URL is not set"),
        ("redis:6379", {}, "redis://HOST:PORT"),
        ("http://redis:6379", {}, "redis://HOST:PORT"),
        ("redis://", {}, "redis://HOST:PORT"),
        ("unix://", {}, "unix:///PATH"),
        ("redis://redis:port", {}, "no URL"),
        ("redis://redis:6379/0?socket_timeout=60", {}, "without `?`"),
        ("env:REDIS_URL", {"REDIS_URL": f"redis://x:{PASSWORD}@redis:port"}, "no URL"),
    ],
)
def test_what_cannot_be_right_is_refused_in_words_without_the_password(setting, environ, what):
    """A time limit in the URL would win over ours; a password in the file would be in every backup."""
    with pytest.raises(SecretError) as caught:
        read_redis_url(setting, environ)
    assert what in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_the_mistake_names_its_place(tmp_path):
    """And the whole configuration is refused."""
    path = write_config_data(tmp_path, redis={"url": f"redis://:{PASSWORD}@redis:6379"})
    with pytest.raises(ConfigError) as caught:
        load_config(path, ENVIRON)
    assert "redis.url" in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_the_url_is_among_the_secrets_and_is_not_printed(tmp_path):
    """`Secrets` shows nothing of it."""
    environ = {**ENVIRON, "REDIS_URL": f"redis://:{PASSWORD}@redis:6379"}
    config = load_config(write_config_data(tmp_path, redis={"url": "env:REDIS_URL"}), environ)
    secrets = load_secrets(config, environ)
    assert secrets.redis_url == environ["REDIS_URL"]
    assert PASSWORD not in repr(secrets)
    assert PASSWORD not in repr(config)
