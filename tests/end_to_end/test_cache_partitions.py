"""One line of business cannot evict the blocks of another: tenants, a gateway, and a worker with a small cache."""

from __future__ import annotations

from tests.end_to_end.fleet import ask, build_config, cached, chat, client
from tests.end_to_end.processes import gateway, simulated_worker

RULES = "Rules of the house, to be kept in mind at all times. " * 8
SMALL = ("--max-model-len", "1024", "--num-gpu-blocks-override", "129", "--cache-partition", "support=0.4:0.6")


def test_a_floor_keeps_a_tenants_blocks_from_the_flood_of_another(tmp_path):
    """The flooding tenant's own first prompt is gone; the one with a share finds all of its own."""
    with simulated_worker(tmp_path, *SMALL) as worker:
        config = build_config(tmp_path, {"w0": worker.url})
        config["tenants"]["alpha"]["cache_partition"] = "support"
        with gateway(tmp_path, config) as process:
            alpha, beta = client(process.url), client(process.url, "beta")
            for api in (alpha, beta):
                ask(api, chat(RULES, "A question."), max_tokens=1)
            for number in range(8):
                ask(beta, chat(f"{number} {RULES}", "Another question."), max_tokens=1)
            found = [cached(ask(api, chat(RULES, "A question."), max_tokens=1)[0]) for api in (alpha, beta)]
    assert found[0] > len(RULES) - 32
    assert found[1] < 64  # the template's own opening
