"""A replay's results as a table and as JSON: each policy's figures, and how far they are from those that know all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gateway.replay.desk import IDEAL, ORACLE, Result
from router.replay.figures import Figures

Told = dict[str, Any]


class Column(NamedTuple):
    """A column of the table: its head and, for a policy's entry of the JSON, its cell."""

    head: str
    path: tuple[str, ...]
    form: str


COLUMNS = (
    Column("hit rate", ("token_hit_rate",), "{:.1%}"),
    Column("TTFT mean", ("ttft_s", "mean"), "{:.3f} s"),
    Column("p50", ("ttft_s", "p50"), "{:.3f} s"),
    Column("p90", ("ttft_s", "p90"), "{:.3f} s"),
    Column("p99", ("ttft_s", "p99"), "{:.3f} s"),
    Column("end mean", ("total_s", "mean"), "{:.2f} s"),
    Column("busy max/mean", ("busy_max_over_mean",), "{:.3f}"),
    Column("requests max/mean", ("requests_max_over_mean",), "{:.3f}"),
    Column("in time", ("slo_share",), "{:.1%}"),
    Column("x oracle", ("ttft_over_oracle",), "{:.2f}"),
    Column("x ideal", ("ttft_over_ideal",), "{:.2f}"),
)


def told_policies(results: Mapping[str, Result]) -> dict[str, Told]:
    """Each policy's figures as JSON has them; seconds are simulated ones."""
    figures = {name: result.figures for name, result in results.items() if result.figures is not None}
    return {name: {**told_figures(found), **_distances(found, figures)} for name, found in figures.items()}


def told_figures(figures: Figures) -> Told:
    """One replay's figures."""
    return {
        "token_hit_rate": figures.token_hit_rate,
        "ttft_s": {
            "mean": figures.ttft_mean_seconds,
            "p50": figures.ttft_p50_seconds,
            "p90": figures.ttft_p90_seconds,
            "p99": figures.ttft_p99_seconds,
        },
        "total_s": {"mean": figures.total_mean_seconds},
        "busy_max_over_mean": figures.busy_max_over_mean,
        "requests_max_over_mean": figures.requests_max_over_mean,
        "slo_share": figures.slo_share,
        "requests_per_second": figures.requests_per_second,
    }


def _distances(own: Figures, figures: Mapping[str, Figures]) -> Told:
    """Mean TTFT over the oracle's and the ideal's, and the ideal's hit rate that is reached, where those ran."""
    told: Told = {}
    for name in (ORACLE, IDEAL):
        if name in figures and figures[name].ttft_mean_seconds:
            told[f"ttft_over_{name}"] = own.ttft_mean_seconds / figures[name].ttft_mean_seconds
    if IDEAL in figures and figures[IDEAL].token_hit_rate:
        told["hit_rate_over_ideal"] = own.token_hit_rate / figures[IDEAL].token_hit_rate
    return told


def table(policies: Mapping[str, Told]) -> str:
    """The figures, a line for each policy; columns that nobody has anything for are left out."""
    columns = [column for column in COLUMNS if any(_cell(told, column) for told in policies.values())]
    rows = [("", *(column.head for column in columns))]
    rows += [(name, *(_cell(told, column) for column in columns)) for name, told in policies.items()]
    return "\n".join(aligned(rows))


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with the first column to the left and the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:]))]).rstrip()
        for row in rows
    ]


def _cell(told: Told, column: Column) -> str:
    value: Any = told
    for key in column.path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return "" if value is None else column.form.format(value)
