"""The Triton kernels on a GPU: are they right, and how near do they come to what the device can do?

Checks them against float64, then times attention at the shapes of Llama-3.1-8B and Qwen2.5-7B: decode as a share of
the copy bandwidth, prefill as a share of the matrix peak, both measured in the same run. With --interpret small shapes
are checked in Triton's interpreter, on any machine. Exits 1 when a check fails, 2 when there is no GPU.

    PYTHONPATH=. python bench/gpu_kernels.py --json gpu.json

No figure of it is published yet: it has run in the interpreter alone. The aims on an H200 are 70 % of the copy
bandwidth for decodes of 64 MiB of keys and values or more, and 35 % of the matrix peak for prefills from 4,096 tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    options = parse_arguments()
    if options.interpret:
        os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported
    import torch

    if not options.interpret and not torch.cuda.is_available():
        print("no GPU here, nothing was measured; --interpret checks small shapes in Triton's interpreter")
        return 2
    dtypes = [torch.float32, torch.float16] if options.interpret else [torch.bfloat16, torch.float16, torch.float32]
    report: dict[str, Any] = {"device": "interpreter" if options.interpret else torch.cuda.get_device_name()}
    passed = check(report, "cpu" if options.interpret else "cuda", dtypes, short=options.interpret)
    if passed and not options.interpret and not options.check_only:
        measure(report, options.repeats)
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if passed else 1


def check(report: dict[str, Any], device: str, dtypes: list[Any], *, short: bool) -> bool:
    """Run and print all checks; whether all passed."""
    from bench.gpu.checks import run_checks

    checks = []
    for result in run_checks(device, dtypes, short=short):
        word = f"left out ({result.skipped})" if result.skipped else "ok" if result.passed else "WRONG"
        print(f"{word:6} {result.name}: {result.error:.1e} of {result.limit:.1e} allowed", flush=True)
        checks.append(result)
    report["checks"] = [{**result._asdict(), "passed": result.passed} for result in checks]
    failed = sum(not result.passed for result in checks)
    print(f"{len(checks)} checks on {report['device']}, {failed} failed")
    return failed == 0


def measure(report: dict[str, Any], repeats: int) -> None:
    """Time and print every shape, in bfloat16."""
    import torch

    from bench.gpu.cases import LLAMA, QWEN
    from bench.gpu.timing import Timer, measure_all, measure_bounds

    timer = Timer(repeats)
    bounds = measure_bounds(timer, torch.bfloat16)
    print(f"copy {bounds.bandwidth / 1e12:.2f} TB/s, bfloat16 products {bounds.peak / 1e12:.0f} TFLOP/s")
    rows = measure_all(timer, (LLAMA, QWEN), torch.bfloat16, bounds)
    for row in rows:
        print(f"{row.model:14} {row.shape:30} {row.seconds * 1e6:9.1f} µs {row.share:6.1%} of the bound; {row.advice}")
    report["bounds"] = bounds._asdict()
    report["rows"] = [{**row._asdict(), "share": row.share} for row in rows]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--interpret", action="store_true", help="check small shapes in Triton's interpreter")
    parser.add_argument("--check-only", action="store_true", help="no timing")
    parser.add_argument("--repeats", type=int, default=30, metavar="N", help="launches of which the median is told")
    parser.add_argument("--json", type=Path, metavar="PATH", help="write all figures there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
