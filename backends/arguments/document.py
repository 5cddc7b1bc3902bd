"""`python -m backends.arguments.document docs/worker.md` writes the table of options into a page, between two marks."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from backends.arguments import build_parser

BEGIN = "<!-- options: written by `make docs`; a test says when they are out of date -->"
END = "<!-- end of options -->"


def options_table() -> str:
    """All options as one Markdown table per group."""
    return "\n\n".join(_groups(build_parser()))


def with_options(page: str) -> str:
    """The page with the table between its marks made anew; ValueError without marks."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no place for the options: it needs {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{options_table()}\n\n{END}{tail}"


def _groups(parser: argparse.ArgumentParser) -> Iterator[str]:
    for group in parser._action_groups:  # argparse has no public way to its groups
        rows = [_row(action) for action in group._group_actions if action.dest != "help"]
        if rows:
            head = f"| {group.title} | default | what it is |\n| --- | --- | --- |\n"
            yield head + "\n".join(rows)


def _row(action: argparse.Action) -> str:
    value = action.metavar or ("\\|".join(map(str, action.choices)) if action.choices else "")
    flag = f"`{action.option_strings[0]}`" + (f" {value}" if value else "")
    if isinstance(action, argparse.BooleanOptionalAction):
        flag += f", `--no-{action.option_strings[0].removeprefix('--')}`"
    sentence = (action.help or "").replace("|", "\\|")
    return f"| {flag} | {_default(action)} | {sentence} |"


def _default(action: argparse.Action) -> str:
    if isinstance(action.default, bool):
        return "on" if action.default else "off"
    if action.default is None:
        return ""
    return f"`{action.default}`"


def main(path: Path) -> None:
    """Write the table into the page at `path`."""
    path.write_text(with_options(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
