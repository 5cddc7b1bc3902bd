"""The Grafana dashboard: it loads, asks only for series that exist, and says what to do."""

from __future__ import annotations

import json
import re

import promql_parser
import pytest

from gateway.metrics import METRICS, PREFIX
from tests.deploy.kubectl import DEPLOY, render

FILE = DEPLOY / "components" / "monitoring" / "homing.json"
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("",), "gauge": ("",)}


def panels() -> list[dict]:
    """Every panel that shows something."""
    return [panel for panel in json.loads(FILE.read_text())["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    """Every query, with Grafana's variables replaced as Grafana replaces them."""
    texts = [target["expr"] for panel in panels() for target in panel["targets"]]
    replaced = {"$__rate_interval": "5m", "$tenant": ".*", "$model": ".*"}
    for name, value in replaced.items():
        texts = [text.replace(name, value) for text in texts]
    return texts


def exported_series() -> dict[str, set[str]]:
    """Series name to label names, of everything in the gateway's table."""
    return {
        f"{PREFIX}{row.name}{suffix}": set(row.labels) | ({"le"} if suffix == "_bucket" else set())
        for row in METRICS
        for suffix in SUFFIXES[row.kind]
    }


@pytest.mark.parametrize("expression", expressions())
def test_every_query_is_promql(expression):
    """A typing mistake is found here rather than as an empty panel."""
    promql_parser.parse(expression)


@pytest.mark.parametrize("expression", expressions())
def test_every_series_and_label_that_a_query_names_is_exported(expression):
    """No panel waits for a metric or groups by a label that nobody exposes."""
    series = exported_series()
    named = set(re.findall(r"\bhoming_[a-z_]+", expression))
    assert named
    assert named <= set(series), named - set(series)
    labels = set().union(*(series[name] for name in named))
    grouped = {label.strip() for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(",")}
    matched = {label for group in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)=~?", group)}
    assert grouped | matched <= labels


def test_the_dashboard_has_a_dozen_panels_and_each_says_what_to_do():
    """An on-call person reads the description, not the source."""
    found = panels()
    assert 12 <= len(found) <= 20
    assert all(len(panel["description"]) > 15 for panel in found)
    assert len({panel["title"] for panel in found}) == len(found)


def test_every_panel_uses_the_chosen_data_source():
    """A hard-coded uid works on the author's Grafana only."""
    for panel in panels():
        uids = {panel["datasource"]["uid"], *(target["datasource"]["uid"] for target in panel["targets"])}
        assert uids == {"${datasource}"}


def test_panels_do_not_overlap():
    """Each cell of the grid belongs to one panel."""
    cells: set[tuple[int, int]] = set()
    for panel in json.loads(FILE.read_text())["panels"]:
        place = panel["gridPos"]
        own = {(place["x"] + dx, place["y"] + dy) for dx in range(place["w"]) for dy in range(place["h"])}
        assert not own & cells, panel["title"]
        cells |= own


def test_grafanas_sidecar_finds_the_dashboard(tmp_path):
    """The ConfigMap carries the sidecar's label and the very file."""
    maps = [m for m in render("overlays/vllm", tmp_path) if m["metadata"]["name"] == "homing-dashboard"]
    assert maps[0]["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(maps[0]["data"]["homing.json"]) == json.loads(FILE.read_text())
