"""The bench as it is called: judging earlier figures, tables in a document, exit status."""

import json

import pytest

from bench.bars.cells import Cell
from bench.bars.store import Store
from bench.bars.tables import better_peers, tables
from bench.placement import _as_json, main
from tests.bench.bars.builders import CHAT, build_chat, build_figures

DOCUMENT = (
    "# Title\n<!-- tables -->\nold\n<!-- end of tables -->\nbetween\n<!-- better -->\n<!-- end of better -->\nend\n"
)


def write_figures(path, homing_seconds: float) -> None:
    seconds = {"homing": homing_seconds, "oracle": 1.0, "ideal": 0.9, "least_requests": 5.0, "llmd_sticky": 1.2}
    figures = {Cell(CHAT, policy): build_figures(ttft) for policy, ttft in seconds.items()}
    path.write_text(json.dumps(_as_json(figures, [])))


@pytest.mark.parametrize(("seconds", "status"), [(1.0, 0), (1.3, 1)])
def test_the_exit_status_tells_a_miss(tmp_path, monkeypatch, capsys, seconds: float, status: int):
    """And each miss is printed once more at the end."""
    write_figures(tmp_path / "figures.json", seconds)
    monkeypatch.setattr("sys.argv", ["placement.py", "--from", str(tmp_path / "figures.json")])
    assert main() == status
    printed = capsys.readouterr().out
    assert ("MISSED" in printed) is bool(status)
    assert "bars met" in printed


def test_a_documents_tables_are_renewed_between_their_marks(tmp_path, monkeypatch, capsys):
    """What stands around them stays."""
    write_figures(tmp_path / "figures.json", 1.3)
    document = tmp_path / "placement.md"
    document.write_text(DOCUMENT)
    arguments = ["placement.py", "--from", str(tmp_path / "figures.json"), "--markdown", str(document)]
    monkeypatch.setattr("sys.argv", arguments)
    main()
    text = document.read_text()
    assert text.startswith("# Title\n<!-- tables -->\n### conversation, engine A")
    assert "old" not in text
    assert "between\n<!-- better -->\n- conversation C=4,000 load 0.9: `llmd_sticky`, time to first token 1.200" in text


def test_a_document_without_marks_is_refused(tmp_path, monkeypatch):
    """The message says what is missing."""
    write_figures(tmp_path / "figures.json", 1.0)
    (tmp_path / "placement.md").write_text("# Title\n")
    arguments = ["--from", str(tmp_path / "figures.json"), "--markdown", str(tmp_path / "placement.md")]
    monkeypatch.setattr("sys.argv", ["placement.py", *arguments])
    with pytest.raises(SystemExit, match="has no place for them"):
        main()


def test_tables_have_homing_first_and_peers_by_their_distance():
    """Seconds and hit rate in each cell."""
    rows = [line for line in tables(build_chat(1.0)) if line.startswith("| ")]
    assert [row.split(" | ")[0].strip("| *") for row in rows[1:]] == [
        "homing",
        "oracle",
        "ideal",
        "llmd_sticky",
        "least_requests",
    ]
    assert "1.00 · 50 %" in rows[1]


def test_only_better_peers_are_listed():
    """None at 1.0 s, one at 1.3 s."""
    assert better_peers(build_chat(1.0)) == []
    assert len(better_peers(build_chat(1.3))) == 1


def test_what_an_interrupted_run_left_can_be_judged(tmp_path, monkeypatch, capsys):
    """Cells that are missing are left out."""
    store = Store(tmp_path)
    for policy, seconds in (("homing", 1.0), ("oracle", 1.0), ("ideal", 0.9), ("least_requests", 5.0)):
        store.keep(Cell(CHAT, policy), build_figures(seconds))
    monkeypatch.setattr("sys.argv", ["placement.py", "--kept", "--folder", str(tmp_path)])
    assert main() == 0
    assert "1.03 × oracle 1.000" in capsys.readouterr().out


def test_nothing_judged_is_nothing_met(tmp_path, monkeypatch, capsys):
    """An empty folder clears no bar."""
    monkeypatch.setattr("sys.argv", ["placement.py", "--kept", "--folder", str(tmp_path)])
    assert main() == 1
    assert "0 of 0 bars met" in capsys.readouterr().out
