"""`homing replay`: a recorded trace over simulated workers, under as many policies as you like."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.cli import MISUSE, PROBLEMS, WELL, CommandError
from gateway.config_source import did_you_mean
from gateway.replay.arguments import DEFAULT_LOAD, OWN_PACE, add_arguments
from gateway.replay.desk import POLICY_NAMES, Gateways, Loaded, Result, Setup, Source, load
from gateway.replay.picture import NoPicture, check_drawable, draw
from gateway.replay.plan import BASELINES, Pace, Plan, Points, own_requests_per_second
from gateway.replay.processes import Processes, ReplayFailed
from gateway.replay.report import table, told_policies
from gateway.replay.saving import RECORDED, prefills, recorded_figures, saving_table
from router.replay.core import EngineSettings
from router.replay.traces import TraceError

MORE = "docs/replay.md says what the figures mean"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add this command's options."""
    add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Replay; 2 for a wrong trace, policy or number, 1 when a replay failed."""
    policies = _policies(arguments.policy)
    try:
        if arguments.png is not None:
            check_drawable(arguments.png)
        loaded = load(_source(arguments))
        _check(arguments, loaded)
        return _replay(arguments, loaded, policies)
    except TraceError as error:
        raise CommandError(str(error), then=MORE, code=MISUSE) from None
    except NoPicture as error:
        raise CommandError(f"--png: {error}", code=MISUSE) from None
    except ReplayFailed as error:
        raise CommandError(str(error), code=PROBLEMS) from None


def _replay(arguments: argparse.Namespace, loaded: Loaded, policies: list[str]) -> int:
    setup = _setup(arguments)
    baselines = BASELINES if loaded.recording is not None else ()
    with Processes(setup, arguments.processes or len(os.sched_getaffinity(0))) as processes:
        plan = Plan(loaded.trace, processes.run, _progress)
        _progress(_introduction(loaded))
        pace = _pace(arguments, loaded, plan)
        results = plan.policies([*policies, *baselines], pace, setup.engine.cache_blocks)
        _show(_told(arguments, loaded, setup, pace, results), policies[0], as_json=arguments.json)
        if arguments.png is not None:
            _draw(plan.sweep(policies, pace, setup.engine.cache_blocks), arguments.png, pace)
    return WELL


def _told(
    arguments: argparse.Namespace, loaded: Loaded, setup: Setup, pace: Pace, results: Mapping[str, Result]
) -> dict[str, Any]:
    """Everything that is printed, as JSON has it."""
    policies = _policies(arguments.policy)
    told = {
        "parameters": _parameters(arguments, loaded, setup, pace),
        "policies": told_policies({name: results[name] for name in policies}),
    }
    if loaded.recording is not None:
        told["recorded"] = recorded_figures(loaded)
        told["prefill"] = prefills(loaded, {name: results[name] for name in (*BASELINES, *policies)}, setup.engine)
    return told


def _policies(words: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in words.split(",") if name.strip()))
    for name in names:
        if name not in POLICY_NAMES:
            hint = did_you_mean(name, POLICY_NAMES)
            what = f"--policy: no policy is called {name!r}" + (f"; {hint}" if hint else "")
            raise CommandError(what, then=f"there are {', '.join(POLICY_NAMES)}", code=MISUSE)
    if not names:
        raise CommandError("--policy names nobody", then=f"there are {', '.join(POLICY_NAMES)}", code=MISUSE)
    return names


def _check(arguments: argparse.Namespace, loaded: Loaded) -> None:
    """What can only be said with the trace at hand, before anything is replayed."""
    scaled = arguments.load != OWN_PACE and not loaded.trace.closed_loop
    if scaled and not own_requests_per_second(loaded.trace):
        what = f"{arguments.trace}: all requests come at one moment, so there is no pace to scale to a load"
        raise CommandError(what, then="replay them so: --load recorded", code=MISUSE)
    if loaded.recording is None and (arguments.model is not None or arguments.sessions_wait):
        option = "--model" if arguments.model is not None else "--sessions-wait"
        raise CommandError(f"{option} is for recordings of the gateway", then=MORE, code=MISUSE)


def _source(arguments: argparse.Namespace) -> Source:
    return Source(arguments.trace, arguments.model, arguments.limit, arguments.sessions_wait)


def _setup(arguments: argparse.Namespace) -> Setup:
    return Setup(
        source=_source(arguments),
        engine=EngineSettings(
            workers=arguments.workers,
            cache_blocks=arguments.cache_blocks,
            kind=arguments.engine,
            prefill_tokens_per_second=arguments.prefill_rate,
            prefill_fixed_seconds=arguments.prefill_fixed,
        ),
        gateways=Gateways(arguments.gateways, arguments.news_delay, learn=not arguments.no_learning),
        slo_seconds=arguments.slo,
        seed=arguments.seed,
    )


def _pace(arguments: argparse.Namespace, loaded: Loaded, plan: Plan) -> Pace:
    if arguments.load == OWN_PACE or loaded.trace.closed_loop:
        load = arguments.load if isinstance(arguments.load, float) else 1.0
        return Pace(load, 1 / load)
    return plan.pace(arguments.load or DEFAULT_LOAD, arguments.cache_blocks)


def _introduction(loaded: Loaded) -> str:
    trace = loaded.trace
    loop = ", sessions wait for their answers" if trace.closed_loop else ""
    tokens = sum(request.prompt.tokens for request in trace.requests)
    return (
        f"{trace.name}: {len(trace.requests)} requests, {tokens:,} prompt tokens, blocks of {trace.block_tokens}{loop}"
    )


def _parameters(arguments: argparse.Namespace, loaded: Loaded, setup: Setup, pace: Pace) -> dict[str, Any]:
    trace, engine = loaded.trace, setup.engine
    return {
        "trace": str(arguments.trace),
        "requests": len(trace.requests),
        "block_tokens": trace.block_tokens,
        "closed_loop": trace.closed_loop,
        "workers": engine.workers,
        "cache_blocks": engine.cache_blocks,
        "engine": engine.kind,
        "prefill_tokens_per_second": engine.prefill_tokens_per_second,
        "prefill_fixed_seconds": engine.prefill_fixed_seconds,
        "load": pace.load,
        "time_scale": pace.time_scale,
        "sustained_requests_per_second": pace.sustained_per_second,
        "gateways": setup.gateways.number,
        "news_delay_seconds": setup.gateways.news_delay_seconds,
        "learns": setup.gateways.learn,
        "slo_seconds": setup.slo_seconds,
        "seed": setup.seed,
        **({"sample": loaded.recording.sample, "model": loaded.recording.model} if loaded.recording else {}),
    }


def _show(told: dict[str, Any], reference: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(told, indent=2))
        return
    print(_pace_in_words(told["parameters"]))
    recorded = {RECORDED: told["recorded"]} if "recorded" in told else {}
    print(table({**told["policies"], **recorded}))
    if "prefill" in told:
        print()
        print(saving_table(told["prefill"], reference))
    sample = told["parameters"].get("sample", 1.0)
    if sample < 1:
        print(
            f"\nThe recording is a sample of {sample:g}: with all of the traffic, workers would need "
            f"{told['parameters']['cache_blocks'] / sample:,.0f} blocks each for the same hit rate."
        )


def _pace_in_words(parameters: dict[str, Any]) -> str:
    sustained, load = parameters["sustained_requests_per_second"], parameters["load"]
    blocks = parameters["cache_blocks"]
    fleet = f"{parameters['workers']} workers of {blocks:,} blocks ({blocks * parameters['block_tokens']:,} tokens)"
    if sustained is None:
        return f"{fleet}, at {load:g} times the trace's own pace"
    return (
        f"{fleet}, at {load:g} of the {sustained:.2f} requests a second that least_loaded sustains, which is "
        f"{1 / parameters['time_scale']:.2f} times the trace's own pace"
    )


def _draw(points: Points, path: Path, pace: Pace) -> None:
    relative = pace.sustained_per_second is not None
    try:
        draw(points, path, "load, of what least_loaded sustains" if relative else "times the trace's own pace")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandError(f"--png {path}: {reason}", code=MISUSE) from None


def _progress(words: str) -> None:
    print(f"replay: {words}", file=sys.stderr, flush=True)
