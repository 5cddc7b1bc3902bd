"""docs/worker.md beside the code: every option, every endpoint, every word for retention and eviction."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.arguments import build_parser, parse_arguments
from backends.arguments.document import BEGIN, END, main, options_table, with_options
from backends.cache_fields import OPENAI_RETENTIONS, RETENTIONS
from backends.eviction import EVICTION_POLICIES
from backends.loading import load
from backends.log_line import Pulse
from backends.refused_routes import NO_ADAPTER_ROUTES, NOT_SERVED
from backends.server import build_app
from backends.wiring import build_worker

PAGE = (Path(__file__).parents[2] / "docs" / "worker.md").read_text(encoding="utf-8")


def test_the_options_on_the_page_are_current():
    """`make docs` writes them anew."""
    assert with_options(PAGE) == PAGE


def test_every_option_has_a_row():
    """With its default and a sentence."""
    table = options_table()
    for action in build_parser()._actions:
        if action.dest != "help":
            assert f"| `{action.option_strings[0]}`" in table, action.dest
    assert "| `--block-size` TOKENS | `16` |" in table
    assert "| `--share-in-flight`, `--no-share-in-flight` | on |" in table


def test_every_endpoint_is_on_the_page(tmp_path: Path):
    """With everything switched on."""
    token = tmp_path / "token"
    token.write_text("a-secret-of-the-workers")
    arguments = ["--simulated", "--enable-dev-routes", "--enable-cache-routes", "--peer-token-file", str(token)]
    options = parse_arguments(arguments)
    app = build_app(build_worker(options, load(options), Pulse()))
    paths = {route.resource.canonical for route in app.router.routes() if route.resource is not None}
    served = paths - set(NOT_SERVED) - set(NO_ADAPTER_ROUTES)
    assert {path for path in served if f"`{path}`" not in PAGE and f" {path}`" not in PAGE} == set()


@pytest.mark.parametrize("word", [*RETENTIONS, *OPENAI_RETENTIONS, *EVICTION_POLICIES])
def test_every_word_that_a_request_or_an_operator_may_use_is_explained(word: str):
    """Retentions, OpenAI's, and eviction policies."""
    assert f"`{word}`" in PAGE


def test_the_table_is_put_between_its_marks_and_nowhere_else(tmp_path: Path):
    """What people wrote stays; a page without marks is an error."""
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nwas here\n{END}\nafter\n")
    main(page)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "was here" not in text
    with pytest.raises(ValueError, match="no place"):
        with_options("no marks")
