"""Code that was made to keep a lexer busy, and code of which a lexer takes content for a comment."""

from __future__ import annotations

import time

import pytest

from gateway.rewrites import code as code_module
from gateway.rewrites.code import MOST_CHARACTERS, MOST_LINE_CHARACTERS, clean_code
from gateway.rewrites.languages import LANGUAGES
from router.normalise.edits import apply

BOTH = frozenset({"code_comments", "code_blank_lines"})
COMMENTED = "a;  // gone\n"
END = "\nlast = 1\n"


def cpu_seconds(text: str, language: str) -> float:
    began = time.thread_time()
    clean_code(text, language, BOTH)
    return time.thread_time() - began


@pytest.mark.parametrize("piece", ["/*", '"', "'", "`", '"\\', "a.", "a<", "int a ", "/", "\n", "\r\n", "  \n\t", "<"])
@pytest.mark.parametrize("language", ["java", "php", "python"])
def test_endless_lines_and_gaps_are_left_alone_at_once(piece, language):
    """A quarter of a million of them: a lexer's rule would look at all of it from every place, for minutes, and hold
    the whole gateway up, since one look cannot be stopped."""
    text = COMMENTED + piece * (MOST_CHARACTERS // len(piece) - 10) + END
    assert clean_code(text, language, BOTH) == []
    assert cpu_seconds(text, language) < 0.5


@pytest.mark.parametrize(("language", "line"), [("java", "id\n"), ("java", "a." * 499 + "\n"), ("python", "# x\n")])
def test_what_takes_too_long_is_left_alone(language, line, monkeypatch):
    """Each line is an ordinary one, and each look is at all that follow: it ends between two tokens."""
    monkeypatch.setattr(code_module, "MOST_SECONDS", 0.05)
    text = COMMENTED + line * (MOST_CHARACTERS // len(line) - 10) + END
    assert clean_code(text, language, BOTH) == []
    assert cpu_seconds(text, language) < 1.0


@pytest.mark.parametrize("language", sorted(set(LANGUAGES) - {"python", "lua", "sql"}))
def test_the_longest_lines_and_gaps_that_people_write_are_read(language):
    """A table of numbers, a gap between two parts."""
    line = "x = {" + "1, " * ((MOST_LINE_CHARACTERS - 20) // 3) + "};\n"
    text = f"<?php\n{COMMENTED}{line}" if language == "php" else COMMENTED + line
    assert "gone" not in apply(text + "\n" * 100 + END, clean_code(text + "\n" * 100 + END, language, BOTH))


@pytest.mark.parametrize(
    "line",
    ["SELECT `a--b` FROM t", "SELECT [a--b] FROM t", "SELECT 5--1", "SELECT (x) --(y)", "SELECT `a#b` -- c"],
)
def test_sql_whose_dashes_may_be_no_comment_is_left_alone(line):
    """Names in backticks (MySQL) and brackets (SQL Server); to MySQL, dashes before a digit are no comment."""
    assert clean_code(f"{line}\n;\nSELECT 1;\n", "sql", BOTH) == []


def test_other_sql_loses_its_comments():
    """With names in backticks and brackets, and comments without a space."""
    text = "SELECT `a`, [b] -- gone\nFROM t --gone\nWHERE x = '--keep';\nSELECT 2;\n"
    assert apply(text, clean_code(text, "sql", BOTH)) == "SELECT `a`, [b]\nFROM t\nWHERE x = '--keep';\nSELECT 2;\n"


KEPT = {
    "php": "#[Route('/x')]\nclass A {}\n$b = <<<EOT\n// in # text\n\nEOT;\n",
    "javascript": "const r = /[/*]\\/\\/x/g;\nconst t = `a // b ${ c } // e`;\nconst n = `\n\n// keep\n`;\n",
    "java": 'String s = """\n  // keep\n\n  \\""" still // keep\n  """;\nchar c = \'"\';\n',
    "swift": 'let a = """\n// keep\n\n"""\nlet b = #"// keep " "#\n',
    "cpp": 'auto b = R"x(\n// keep\n\n)" )x";\nint n = 1\'000;\nchar c = \'"\';\n',
    "rust": 'let a = r#"// keep "x" // keep\n\n"#;\nfn f<\'a>(x: &\'a str) {}\nlet c = \'"\';\n',
    "csharp": 'var p = @"c:\\";\nvar q = @"a "" // keep";\nvar r = """\n // keep\n\n """;\nvar u = @$"c:\\";\n',
    "go": "a := `// keep\n\n/* keep */`\nr := '\"'\n",
    "lua": "a = [==[ -- keep ]] -- keep ]==]\nd = '\\\n-- keep'\n",
    "scala": 'val a = """// keep " // keep"""\nval c = \'"\'\n',
    "python": "a = f\"{x} # keep {y!r:#x}\"\nc = r\"\\\" # keep\"\n'''\n# keep\n\n'''\n",
    "c": 'char *a = "x\\\n// keep";\nchar c = \'"\';\n',
    "typescript": "const b = `${`// keep`}`;\ntype T = `a//${string}`;\n",
}


@pytest.mark.parametrize("language", sorted(KEPT))
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_strings_in_every_spelling_keep_what_looks_like_a_comment(language, ends):
    """Raw strings, text blocks, templates, regular expressions, attributes, characters that are quotes."""
    text = (("<?php\n" if language == "php" else "") + KEPT[language] + "end_of_code = 1\n").replace("\n", ends)
    assert apply(text, clean_code(text, language, BOTH)) == text


@pytest.mark.parametrize("end", ["\r", "\u2028", "\u2029", "\x85"])
def test_a_line_that_only_a_compiler_sees_the_end_of_is_no_comment(end):
    """For a lexer the comment goes on over what follows."""
    assert clean_code(f"a = 1; // remark{end}b = 2;\nlast();\n", "javascript", BOTH) == []
