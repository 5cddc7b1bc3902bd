"""Every promise has a test and every test of a promise a row; docs/TRUST.md says what the ledger says."""

from __future__ import annotations

from tests.faults.ledger import PAGE, LedgerRow, marked_tests, read_ledger, trust_page, write_ledger


def test_rows_and_tests_belong_to_each_other():
    """Both ways: a row without a test fails, and so does a test that no row tells of."""
    rows = {row.id: row.test for row in read_ledger()}
    assert rows == dict(marked_tests())


def test_every_row_says_what_is_promised():
    """Ids are unique, and nothing is left empty."""
    rows = read_ledger()
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert all((row.id, row.property, row.promise, row.test, row.figure)), row


def test_the_page_is_fresh():
    """`make docs` writes it."""
    assert PAGE.read_text() == trust_page(read_ledger())


def test_what_is_written_is_read_again(tmp_path):
    """Figures have colons, commas and signs of all kinds in them."""
    rows = [
        LedgerRow("A1", "a: b", "≤ 2, `x`", "tests/x.py::y", figure="p99 +5 ms: - ok | #", held=True, date="2026-01-02")
    ]
    write_ledger(rows, tmp_path / "rows.yml")
    assert read_ledger(tmp_path / "rows.yml") == rows
    assert "\\|" in trust_page(rows)
