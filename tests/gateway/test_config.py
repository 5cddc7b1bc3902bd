"""The configuration: what is right loads, and every mistake is told with its place, its line and the way out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from gateway.config import Config, ConfigError, Secrets, check_config, config_for_workers, load_config, load_secrets
from gateway.config_checks import find_mistakes
from gateway.config_convert import convert
from gateway.config_source import did_you_mean, json_path, read_yaml
from gateway.settings import Listen
from tests.gateway.builders import ENVIRON, SALT_SECRET, build_config_data, key_line, write_config, write_config_data

EXAMPLES = Path(__file__).parents[2] / "examples"
DEPLOY = Path(__file__).parents[2] / "deploy"
EXAMPLE_ENVIRON = {"HOMING_SALT": SALT_SECRET, "HOMING_SALT_NEXT": SALT_SECRET[::-1]}


def mistake_in(folder, text, environ=ENVIRON) -> ConfigError:
    """The error that this YAML raises."""
    with pytest.raises(ConfigError) as caught:
        load_config(write_config(folder, text), environ)
    return caught.value


def mistake_with(folder, **sections) -> ConfigError:
    """The error that the small right configuration raises with these sections."""
    with pytest.raises(ConfigError) as caught:
        load_config(write_config_data(folder, **sections), ENVIRON)
    return caught.value


def build_yaml(tenant: str = "models: [m]", *, model: str = "", top: str = "") -> str:
    """The small right configuration as YAML, with lines that a test counts."""
    return (
        "salt_secrets: {k1: env:SALT}\n"  # line 1
        "models:\n"
        "  m:\n"
        "    backends: {static: [http://127.0.0.1:8001]}\n"
        f"    {model}\n"  # line 5
        "tenants:\n"
        "  acme:\n"
        f"    keys: [{key_line('acme-key')}]\n"
        f"    {tenant}\n"  # line 9
        f"{top}\n"  # line 10
    )


def test_a_small_configuration_loads(tmp_path):
    """Everything not said has its default."""
    config = load_config(write_config_data(tmp_path), ENVIRON)
    assert isinstance(config, Config)
    assert config.timeouts.connect_seconds == 1.0
    assert config.timeouts.first_byte_seconds == 60.0
    assert config.timeouts.idle_seconds == 30.0
    assert config.limits.body_bytes == 32 * 1024 * 1024
    assert config.listen.admin_host == "127.0.0.1"


@pytest.mark.parametrize("name", ["homing.yaml", "tenants.yaml"])
def test_the_examples_load(name):
    """What a reader copies is right."""
    config = load_config(EXAMPLES / name, EXAMPLE_ENVIRON)
    assert load_secrets(config, EXAMPLE_ENVIRON).salt_key == SALT_SECRET.encode()


@pytest.mark.parametrize("path", sorted(DEPLOY.rglob("homing.yaml")), ids=lambda path: path.parent.name)
def test_what_is_deployed_is_well_typed(path):
    """The cluster's files; their secrets are mounted there only."""
    config = convert(read_yaml(path.read_text(), str(path)))
    assert config.listen.host == "0.0.0.0"
    mistakes = list(find_mistakes(config, {}, Secrets()))
    assert all("cannot read /etc/homing/" in mistake.what for mistake in mistakes)


def test_secrets_are_read_once_by_reference(tmp_path):
    """Keys as digests, the salt secret in use, the keys of workers."""
    (tmp_path / "wk").write_text("worker-key\n")
    (tmp_path / "keys").write_text("a-plain-key-of-22-chars\n")
    backend = {"url": "http://127.0.0.1:8001", "api_key": f"file:{tmp_path / 'wk'}"}
    tenant = {"keys": [key_line("acme-key"), f"file:{tmp_path / 'keys'}"]}
    path = write_config_data(tmp_path, models={"m": {"backends": {"static": [backend]}}}, tenants={"acme": tenant})
    secrets = load_secrets(load_config(path, ENVIRON), ENVIRON)
    assert len(secrets.digests["acme"]) == 2
    assert list(secrets.worker_keys.values()) == ["worker-key"]
    assert secrets.salt_key == SALT_SECRET.encode()
    assert "worker-key" not in repr(secrets)


def test_an_unknown_field_names_the_one_that_was_meant(tmp_path):
    """Path, line and suggestion."""
    error = mistake_in(tmp_path, build_yaml("modells: [m]"))
    assert (json_path(error.path), error.line) == ("$.tenants.acme.modells", 9)
    assert error.what == "unknown field `modells`"
    assert error.hint == "did you mean `models`?"
    assert str(error).startswith(f"{tmp_path}/homing.yaml:9: $.tenants.acme.modells: unknown field")


def test_an_unknown_section_is_found_at_the_top(tmp_path):
    """Even where msgspec gives no path at all."""
    error = mistake_in(tmp_path, build_yaml(top="limts: {body_bytes: 5}"))
    assert (json_path(error.path), error.line, error.hint) == ("$.limts", 10, "did you mean `limits`?")


def test_a_word_near_to_nothing_gets_the_whole_list(tmp_path):
    """Where no field is near, all are named."""
    error = mistake_in(tmp_path, build_yaml(top="log: {zzz: 1}"))
    assert error.hint == "known: decision_share, format, level, request_share"


@pytest.mark.parametrize(
    ("text", "path", "line", "what"),
    [
        (build_yaml("models: m"), "$.tenants.acme.models", 9, "expected `list | nothing`, got `str`"),
        (build_yaml("models: [m, 3]"), "$.tenants.acme.models[1]", 9, "expected `str`, got `int`"),
        (build_yaml(model="weight: [1]"), "$.models.m.weight", 5, "unknown field `weight`"),
        (build_yaml(model="max_in_flight: 0"), "$.models.m.max_in_flight", 5, "expected `int` >= 1"),
        (build_yaml(top="listen: {port: 80800}"), "$.listen.port", 10, "<= 65535"),
        (build_yaml(top="listen: {port: http}"), "$.listen.port", 10, "expected `int`, got `str`"),
        (build_yaml(top="timeouts: {idle_seconds: 0}"), "$.timeouts.idle_seconds", 10, "> 0"),
        (build_yaml(top="timeouts:"), "$.timeouts", 10, "expected `mapping`, got `nothing`"),
        (build_yaml(top="8080: {}"), "$", 10, "`8080` is read as int, not as text; write it in quotes"),
        (build_yaml(top="on: {}"), "$", 10, "`on` is read as bool"),
    ],
)
def test_a_wrong_type_is_told_with_its_place(tmp_path, text, path, line, what):
    """The path inside mappings of names, too, where msgspec writes `[...]`."""
    error = mistake_in(tmp_path, text)
    assert (json_path(error.path), error.line) == (path, line)
    assert what in str(error)


def test_the_guilty_one_of_many_is_named(tmp_path):
    """Ten tenants, one mistake."""
    tenants = {f"t{number}": {"keys": [key_line(f"k{number}")]} for number in range(10)}
    tenants["t7"]["keys"].append(5)
    error = mistake_with(tmp_path, tenants=tenants)
    assert json_path(error.path) == "$.tenants.t7.keys[1]"


def test_a_word_out_of_a_list_is_suggested(tmp_path):
    """An enum's values are known."""
    error = mistake_in(tmp_path, build_yaml(top="log: {level: warnings}"))
    assert (json_path(error.path), error.hint) == ("$.log.level", "did you mean `warning`?")


def test_a_missing_field_is_named(tmp_path):
    """And what to add."""
    error = mistake_with(tmp_path, models={"m": {}})
    assert (json_path(error.path), error.what, error.hint) == (
        "$.models.m",
        "the field `backends` is missing",
        "add `backends:`",
    )


@pytest.mark.parametrize(
    ("sections", "path", "what", "hint"),
    [
        ({"models": {"m": {"backends": {"static": []}}}}, "$.models.m.backends.static", "length >= 1", ""),
        ({"tenants": {}}, "$.tenants", "length >= 1", ""),
        (
            {"salt_secrets": {"k1": "env:NOPE"}},
            "$.salt_secrets.k1",
            "the environment variable NOPE is not set",
            "openssl",
        ),
        ({"salt_secrets": {"k1": "file:/nowhere"}}, "$.salt_secrets.k1", "cannot read /nowhere", "openssl"),
        ({"salt_secrets": {"k1": "s3cr3t"}}, "$.salt_secrets.k1", "never itself", "openssl"),
        ({"salt_secret": "k2"}, "$.salt_secret", "no salt secret has the id `k2`", "known: k1"),
        ({"salt_secrets": {}}, "$.tenants.acme", "needs a salt secret", "isolation: shared"),
        ({"listen": {"port": 8080, "admin_port": 8080}}, "$.listen.admin_port", "port 8080 is the API's", "another"),
    ],
)
def test_what_no_type_can_say_is_checked(tmp_path, sections, path, what, hint):
    """Secrets, ids and ports."""
    error = mistake_with(tmp_path, **sections)
    assert json_path(error.path) == path
    assert what in error.what
    assert hint in error.hint
    assert "s3cr3t" not in str(error)


@pytest.mark.parametrize(
    ("tenant", "path", "what", "hint"),
    [
        ({"models": ["n"]}, ".models[0]", "no model is named `n`", "m"),
        ({"policy": "homming"}, ".policy", "unknown policy `homming`", "did you mean `homing`?"),
        ({"isolation": "tennant"}, ".isolation", "isolation is shared, group:NAME", "did you mean `tenant`?"),
        ({"isolation": "group:"}, ".isolation", "isolation is shared, group:NAME", "group:NAME"),
        ({"fold": ["no-such-rule"]}, ".fold", "no-such-rule", ""),
        ({"keys": []}, "", "no key opens this tenant", "homing keys mint acme"),
        ({"cache_partition": ""}, ".cache_partition", "named by 1 to 128", "--cache-partition NAME="),
        ({"cache_partition": "a=b"}, ".cache_partition", "without `=`", "--cache-partition NAME="),
        ({"cache_partition": " a"}, ".cache_partition", "without spaces around", "--cache-partition NAME="),
        ({"keys": ["sk-CANARY-91"]}, ".keys[0]", "never itself", ""),
        ({"keys": ["sha256:abc"]}, ".keys[0]", "64 hex digits", ""),
        ({"keys": ["file:/nowhere"]}, ".keys[0]", "cannot read /nowhere", ""),
    ],
)
def test_a_tenants_mistakes_are_found(tmp_path, tenant, path, what, hint):
    """Models, rules and keys that are not there."""
    error = mistake_with(tmp_path, tenants={"acme": {"keys": [key_line("acme-key")], **tenant}})
    assert json_path(error.path) == f"$.tenants.acme{path}"
    assert what in error.what
    assert hint in error.hint
    assert "CANARY" not in str(error)


@pytest.mark.parametrize(
    ("backend", "path", "what"),
    [
        ("https://gpu", "", "plain HTTP"),
        ("http://w@evil/", "", "no user or password"),
        ({"url": "http://gpu:x"}, "", "1 to 65535"),
        ({"url": "http://gpu", "api_key": "env:NOPE"}, ".api_key", "NOPE is not set"),
    ],
)
def test_a_bad_worker_is_found(tmp_path, backend, path, what):
    """A URL that is none, a key that is not there."""
    error = mistake_with(tmp_path, models={"m": {"backends": {"static": [backend]}}})
    assert json_path(error.path) == f"$.models.m.backends.static[0]{path}"
    assert what in error.what


def test_a_workers_key_and_name_cannot_end_a_header_line(tmp_path):
    """Both go into heads of requests and answers."""
    (tmp_path / "k").write_bytes(b"one\r\nx-evil: 1")
    keyed = {"url": "http://gpu", "api_key": f"file:{tmp_path / 'k'}"}
    assert "no header can carry" in mistake_with(tmp_path, models={"m": {"backends": {"static": [keyed]}}}).what
    named = {"url": "http://gpu", "name": "w\r\nx-evil: 1"}
    error = mistake_with(tmp_path, models={"m": {"backends": {"static": [named]}}})
    assert json_path(error.path) == "$.models.m.backends.static[0].name"


def test_one_name_is_one_address(tmp_path):
    """And one address one name."""
    twice = [{"url": "http://a", "name": "w"}, {"url": "http://b", "name": "w"}]
    assert "w is the name of" in mistake_with(tmp_path, models={"m": {"backends": {"static": twice}}}).what
    named = ["http://a", {"url": "http://a", "name": "w"}]
    assert "one worker with two names" in mistake_with(tmp_path, models={"m": {"backends": {"static": named}}}).what


def test_a_key_opens_one_tenant(tmp_path):
    """Which one it opens must not depend on the order in a file."""
    key = key_line("same")
    error = mistake_with(tmp_path, tenants={"a": {"keys": [key]}, "b": {"keys": [key]}})
    assert json_path(error.path) == "$.tenants.b.keys[0]"
    assert "$.tenants.a.keys[0]" in error.what
    assert key[7:] not in str(error)


def test_a_short_salt_secret_is_refused(tmp_path):
    """32 bytes, and random ones."""
    path = write_config_data(tmp_path)
    with pytest.raises(ConfigError, match="has 5 bytes, at least 32"):
        load_config(path, {"SALT": "short"})
    with pytest.raises(ConfigError, match="not random"):
        load_config(path, {"SALT": "a" * 64})


def test_several_secrets_need_a_word_on_which(tmp_path):
    """Guessing would empty the caches of all tenants."""
    error = mistake_with(tmp_path, salt_secrets={"k1": "env:SALT", "k2": "env:SALT"})
    assert "no word on which is in use" in error.what


def test_every_mistake_of_a_typed_file_is_told_at_once(tmp_path):
    """No going back and forth."""
    tenants = {"a": {"keys": [key_line("a")], "models": ["n"], "policy": "x"}}
    error = mistake_with(tmp_path, tenants=tenants, salt_secrets={"k1": "env:NOPE"})
    places = [json_path(each.path) for each in (error, *error.others)]
    assert places == ["$.salt_secrets.k1", "$.tenants.a.models[0]", "$.tenants.a.policy"]


def test_an_open_tenant_stays_on_loopback(tmp_path):
    """Nobody opens a gateway to the world by one word."""
    tenants = {"me": {"open": True, "isolation": "shared"}}
    assert load_config(write_config_data(tmp_path, tenants=tenants), ENVIRON)
    error = mistake_with(tmp_path, tenants=tenants, listen={"host": "0.0.0.0"})
    assert "lets anyone in" in error.what
    two = mistake_with(tmp_path, tenants={"a": {"open": True}, "b": {"open": True}})
    assert "`a` is open already" in two.what


def test_a_key_written_twice_is_an_error(tmp_path):
    """YAML readers let the last one win in silence."""
    error = mistake_in(tmp_path, build_yaml(top="models: {}"))
    assert (json_path(error.path), error.line, error.what) == ("$.models", 10, "stands here twice, first on line 2")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "the file is empty"),
        ("a: [1\nb: 2", "not YAML"),
        ("\tx: 1", "not YAML"),
        ("just words", "expected `mapping`, got `str`"),
        ("[1, 2]", "expected `mapping`"),
        ("a: &x [*x]", "unknown field"),
        ("? [1, 2]\n: 3", "not YAML"),
        ("a: !!python/object:os.system {}", "not YAML"),
        ("[" * 5000, "not YAML"),
        ("a: \x00", "not YAML"),
    ],
)
def test_what_is_no_configuration_says_so(tmp_path, text, what):
    """Never a traceback."""
    assert what in str(mistake_in(tmp_path, text))


def test_a_file_that_cannot_be_read_says_how_to_name_one(tmp_path):
    """The commonest mistake of all."""
    with pytest.raises(ConfigError, match="HOMING_CONFIG"):
        load_config(tmp_path / "none.yaml", {})
    (tmp_path / "latin").write_bytes(b"a: \xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load_config(tmp_path / "latin", {})


def test_the_first_try_needs_no_file():
    """Loopback, one open tenant that shares, any model the workers list."""
    config = config_for_workers(["http://127.0.0.1:8001", "http://127.0.0.1:8001", "http://gpu:8000"])
    (tenant,) = config.tenants.values()
    assert (tenant.open, tenant.isolation) == (True, "shared")
    assert config.models["*"].backends.static == ["http://127.0.0.1:8001", "http://gpu:8000"]
    assert config.listen.host == "127.0.0.1"


def test_the_first_try_refuses_the_world():
    """A bad URL, or a host that others reach."""
    with pytest.raises(ConfigError, match="plain HTTP"):
        config_for_workers(["ftp://gpu"])
    with pytest.raises(ConfigError, match="lets anyone in"):
        config_for_workers(["http://gpu"], Listen(host="0.0.0.0"))


def test_a_secret_that_vanishes_after_loading_is_told(tmp_path):
    """Between checking and starting, a mount may go."""
    config = load_config(write_config_data(tmp_path), ENVIRON)
    check_config(config, ENVIRON)
    with pytest.raises(ConfigError, match="SALT is not set"):
        load_secrets(config, {})


def test_lines_are_of_the_deepest_part_that_exists():
    """A missing field is shown at its section."""
    source = read_yaml("a:\n  b:\n    - x\n    - {c: 1}\n", "f")
    assert source.line_of(("a", "b", 1, "c")) == 4
    assert source.line_of(("a", "zzz")) == 1
    assert source.line_of(("zzz",)) is None


def test_paths_are_written_as_one_reads_them():
    """Plain words with dots, others in brackets."""
    assert json_path(("tenants", "a.b", "keys", 0)) == '$.tenants["a.b"].keys[0]'
    assert did_you_mean("x", []) == ""


def test_yaml_and_json_say_the_same(tmp_path):
    """JSON is YAML."""
    data = build_config_data()
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(data))
    (tmp_path / "b.yaml").write_text(json.dumps(data))
    assert load_config(tmp_path / "a.yaml", ENVIRON) == load_config(tmp_path / "b.yaml", ENVIRON)


def test_a_worker_listed_twice_must_say_the_same_each_time(tmp_path):
    """Else one of the two would be dropped without a word."""
    url = "http://127.0.0.1:8000"
    twice = {
        "m": {"backends": {"static": [url]}},
        "n": {"backends": {"static": [{"url": url, "max_in_flight": 2}]}},
    }
    assert "listed twice" in mistake_with(tmp_path, models=twice).what


@pytest.mark.parametrize("number", [".inf", "-.INF", ".NaN", "+.Inf"])
def test_a_number_without_end_is_refused_with_its_line(tmp_path, number):
    """A deadline that never comes is none."""
    path = tmp_path / "homing.yaml"
    path.write_text(f"timeouts:\n  idle_seconds: {number}\n")
    with pytest.raises(ConfigError, match=r"homing.yaml:2: \$\.timeouts\.idle_seconds: not a finite number"):
        load_config(path, {})
