"""Code loses its comments and blank lines and nothing else."""

from __future__ import annotations

import ast
import json.decoder
import json.encoder
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rewrites.code import MOST_CHARACTERS, clean_code
from gateway.rewrites.languages import LANGUAGES, lexer_of
from router.normalise.edits import apply

BOTH = frozenset({"code_comments", "code_blank_lines"})
ALL = BOTH | {"code_indentation"}
END = "\nend_of_code = 1\n"


def cleaned(text: str, language: str = "python", rules: frozenset[str] = BOTH) -> str:
    return apply(text, clean_code(text, language, rules))


def words(text: str, language: str) -> list[str]:
    """The tokens that a compiler sees, of a text as Pygments reads it."""
    tokens = lexer_of(language).get_tokens_unprocessed(text)
    return [value.strip() for _, kind, value in tokens if "Comment" not in str(kind) and value.strip()]


def test_comments_and_blank_lines_go_and_the_rest_stays():
    """Own lines go whole, trailing comments leave their line, strings that look like comments stay."""
    code = textwrap.dedent('''\
        #!/usr/bin/env python
        # A comment.

        def area(radius):  # of a circle
            """Text with a # in it.

            And an empty line above this one."""

            return "# no comment" + str(radius)
        ''')
    assert cleaned(code + END) == textwrap.dedent('''\
        #!/usr/bin/env python
        def area(radius):
            """Text with a # in it.

            And an empty line above this one."""
            return "# no comment" + str(radius)
        end_of_code = 1
        ''')


@pytest.mark.parametrize("module", [json.decoder, json.encoder, ast, textwrap, pytest])
def test_a_real_module_means_the_same_afterwards(module):
    """The syntax tree of a cleaned file is the file's own; only what stands before the last code is cleaned."""
    code = Path(module.__file__).read_text(encoding="utf-8")
    after = cleaned(code)
    assert len(after) < len(code)
    assert ast.dump(ast.parse(after)) == ast.dump(ast.parse(code))
    assert cleaned(after) == after


@pytest.mark.parametrize("language", ["c", "cpp"])
@pytest.mark.parametrize(
    "code",
    [
        '#define HOME "http://example.com/"\n',
        '# error "see https://bugs.python.org/issue31370"\n',
        '#define HOME \\\n  "http://example.com/"\n',
        "#if 0\n#define A 1\nint a = 1;\n#endif\n",
        "#include <sys/types.h> // kept with its line\n",
    ],
)
def test_a_directive_keeps_every_character(code, language):
    """What looks like a comment in it may stand in a string; what `#if 0` switches off is code all the same."""
    assert cleaned(f"// gone\n{code}int b; // gone\nint c;\n", language, BOTH) == f"{code}int b;\nint c;\n"


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("sql", "/*!40101 SET NAMES utf8 */;\nselect /*+ INDEX(a b) */ 1;\n"),
        ("sql", "select 'it\\'s -- no comment' from a;\n"),
        ("sql", "create function f() returns text as $body$\n-- kept\n\n$body$;\n"),
        ("javascript", "const a = <a>http://example.com</a>;\n"),
        ("typescript", "const a = <p>\n\n// text\n</p>;\n"),
        ("go", '//go:build linux\n/*\n#include <x.h>\n*/\nimport "C"\n'),
        ("php", "<?php $a = 1; ?>\n<pre>\n\n  a\n</pre>\n<?php $b = 2;\n"),
        ("python", "a = 1 \\\n\nb = 2\n"),
    ],
)
def test_what_only_looks_like_a_comment_or_an_empty_line_stays(language, code):
    """Hints, directives, strings of other dialects, text between tags, and the line that ends a continued one."""
    text = code + "end_of_code;\nx;\n"
    rules = BOTH if LANGUAGES[language].indentation_has_meaning else ALL
    assert cleaned(text, language, rules) == text


def test_the_comment_before_the_cursor_is_the_question_and_stays():
    """From the last code before the cursor on nothing changes."""
    code = "import os\n\n# Helpers.\n\nx = 1  # one\n\n# Write a function that sorts the names:\n"
    assert cleaned(code) == "import os\nx = 1  # one\n\n# Write a function that sorts the names:\n"


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("<|fim_prefix|># a\nx = 1\ny = 2\n<|fim_suffix|># b\nz = '''\n# c\n<|fim_middle|>",
         "<|fim_prefix|>x = 1\ny = 2\n<|fim_suffix|># b\nz = '''\n# c\n<|fim_middle|>"),
        ("# a\nx = 1\ny = 2\n<SUF># b\n", "x = 1\ny = 2\n<SUF># b\n"),
        ("[PREFIX]# a\nx = 1\ny = 2\n[SUFFIX]# b\nz\n", "[PREFIX]x = 1\ny = 2\n[SUFFIX]# b\nz\n"),
    ],
)  # fmt: skip
def test_what_stands_behind_the_cursor_is_not_read(prompt, expected):
    """A lexer that begins in the middle of a file may take code for a string."""
    assert cleaned(prompt) == expected


SAMPLES = {
    "javascript": "// a\nconst s = `// no\n\n${1 /* x */}`;\n\nlet r = /\\/\\/ no/;\nreturn /* a\nb */ 1;\n",
    "typescript": "/* head */\nlet x: number = 1; // one\n\nconst u = 'http://no';\n",
    "java": "/** doc */\nclass A {\n\n    int a = 1; // one\n    String s = \"/* no */\";\n}\n",
    "c": "#include <a.h> /* b */\n\nint a = 1; // one\nchar *s = \"// no\";\nint b/* */= 2;\n",
    "cpp": "// a\nauto s = R\"(// no\n\n)\";\nint a = 1'000; /* b */ int c;\n",
    "csharp": "// a\nvar s = @\"// no\n\n\";\n\nint a = 1; /* b */\n",
    "go": "// a\npackage main\n\nvar s = `// no\n\n`\nvar a = 1 // one\n",
    "rust": "// a\nlet s = r#\"// no\n\n\"#;\n\nlet a = 1; /* b */\n",
    "swift": "// a\nlet s = \"// no\"\n\nlet a = 1 /* b */\n",
    "php": "<?php\n// a\n$s = '// no';\n\n$a = 1; # one\n",
    "scala": "// a\nval s = \"\"\"// no\n\n\"\"\"\n\nval a = 1 // one\n",
    "sql": "-- a\nselect '-- no' from t\n\nwhere a = 1 -- one\n",
    "lua": "-- a\nlocal s = [[-- no\n\n]]\n\nlocal a = 1 -- one\n",
    "python": "# a\ns = '''# no\n\n'''\n\na = 1 # one\n",
}  # fmt: skip


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_keeps_its_words(language):
    """Comments go, what a compiler reads stays, twice is once, and a string with an empty line keeps it."""
    code = SAMPLES[language] + "last\n"
    rules = BOTH if LANGUAGES[language].indentation_has_meaning else ALL
    after = cleaned(code, language, rules)
    assert words(after, language) == words(code, language)
    assert " one" not in after
    assert len(after) < len(code)
    assert ("\n\n" in after) == ("no\n\n" in code)
    assert cleaned(after, language, rules) == after


def test_indentation_goes_where_it_means_nothing():
    """Only at the start of lines, and not within a string that spans lines."""
    code = "func a() {\n\tif b {\n\t\tc := `x\n\t\ty`\n\t}\n}\nlast\n"
    assert cleaned(code, "go", frozenset({"code_indentation"})) == "func a() {\nif b {\nc := `x\n\t\ty`\n}\n}\nlast\n"


def test_code_that_is_too_long_is_left_alone():
    """A lexer's time is bounded by the length of what it reads."""
    assert clean_code("# a\n" * MOST_CHARACTERS, "python", BOTH) == []


@given(st.text(alphabet="# \t\n'\"a=()\\/*`", max_size=60), st.sampled_from(sorted(LANGUAGES)))
def test_no_text_makes_it_fail_or_edit_what_is_no_comment(text, language):
    """Whatever stands there: edits are sorted, apart and within the text, and never cut a word."""
    edits = clean_code(text, language, BOTH)
    ends = [0, *(place for edit in edits for place in (edit.start, edit.end)), len(text)]
    assert ends == sorted(ends)
    assert clean_code(text, language, frozenset()) == []
