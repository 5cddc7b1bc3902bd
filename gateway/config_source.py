"""A YAML file with its lines kept, so that every complaint can say where."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

import yaml

_ENDLESS = re.compile(r"[-+]?\.(?:inf|nan)", re.IGNORECASE)

Path = tuple[str | int, ...]
"""A place in the file: mapping keys and list indices from the top."""


class ConfigError(Exception):
    """A configuration mistake: where it is, what is wrong, and how to put it right.

    `file` and `line` are None where the configuration did not come from a file. `others` are the mistakes found
    with it.
    """

    def __init__(
        self, what: str, *, path: Path = (), hint: str = "", file: str | None = None, line: int | None = None
    ) -> None:
        self.what = what
        self.path = path
        self.hint = hint
        self.file = file
        self.line = line
        self.others: tuple[ConfigError, ...] = ()
        super().__init__(str(self))

    def __str__(self) -> str:
        place = self.file or "configuration"
        if self.line is not None:
            place += f":{self.line}"
        return f"{place}: {json_path(self.path)}: {self.what}" + (f"; {self.hint}" if self.hint else "")


class Source:
    """What was read, and on which line each of its parts stands."""

    def __init__(self, data: Any, root: yaml.Node | None, file: str | None) -> None:
        self.data = data
        self.file = file
        self._root = root

    def line_of(self, path: Path) -> int | None:
        """The line (from 1) of the deepest part of `path` that exists."""
        node, line = self._root, None
        for step in path:
            found = _child(node, step)
            if found is None:
                break
            line, node = found
        return line

    def error(self, what: str, path: Path, hint: str = "") -> ConfigError:
        """A mistake at `path`, with its file and line."""
        return ConfigError(what, path=path, hint=hint, file=self.file, line=self.line_of(path))


def read_yaml(text: str, file: str | None) -> Source:
    """Parse `text`; a syntax error or a key written twice in one mapping is a `ConfigError` with its line."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if root is None:
            raise ConfigError("the file is empty", file=file, hint="start from examples/homing.yaml")
        _refuse_pitfalls(root, file)
        return Source(yaml.safe_load(text), root, file)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark else None
        raise ConfigError(f"not YAML: {_problem(error)}", file=file, line=line) from None
    except RecursionError:
        raise ConfigError("not YAML: nested too deeply", file=file) from None
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"not YAML: {str(error).splitlines()[0]}", file=file) from None


def _problem(error: yaml.MarkedYAMLError) -> str:
    """In the parser's words, but for an alias or a tag, which may be the beginning of a secret without quotes."""
    told = error.problem or error.context or ""
    for what in ("undefined alias", "the tag"):
        if what in told:
            return f"{what}: a value that begins with * or ! stands in quotes"
    return told


def json_path(path: Path) -> str:
    """`$.tenants.acme.keys[0]`; a key that is no plain word stands in brackets and quotes."""
    return "$" + "".join(_step(step) for step in path)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean `limits`?`, or the list of what is known when nothing is near."""
    known = sorted(known)
    near = get_close_matches(word, known, n=1, cutoff=0.6)
    if near:
        return f"did you mean `{near[0]}`?"
    return f"known: {', '.join(known)}" if known else ""


def _step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if re.fullmatch(r"[\w-]+", step) else f'["{step}"]'


def _child(node: yaml.Node | None, step: str | int) -> tuple[int, yaml.Node] | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        item = node.value[step]
        return item.start_mark.line + 1, item
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == step:
                return key.start_mark.line + 1, value
    return None


def _refuse_pitfalls(root: yaml.Node, file: str | None) -> None:
    """YAML readers let the last of two equal keys win in silence: half of a tenant would vanish. And they read `.inf`,
    which would switch a deadline off."""
    seen: set[int] = set()
    todo: list[tuple[Path, yaml.Node]] = [((), root)]
    while todo:
        path, node = todo.pop()
        if id(node) in seen:  # an alias, perhaps of what it stands in
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            todo += [((*path, index), item) for index, item in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            todo += [((*path, name), value) for name, value in _entries_once(node, path, file)]
        elif node.tag == "tag:yaml.org,2002:float" and _ENDLESS.fullmatch(node.value):
            raise ConfigError("not a finite number", path=path, file=file, line=node.start_mark.line + 1)


def _entries_once(node: yaml.MappingNode, path: Path, file: str | None) -> Iterator[tuple[str, yaml.Node]]:
    first_lines: dict[str, int] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
            continue
        name, line = str(key.value), key.start_mark.line + 1
        if key.tag != "tag:yaml.org,2002:str":
            what = f"the name `{name}` is read as {key.tag.rpartition(':')[2]}, not as text"
            raise ConfigError(what, path=path, hint=f'write it in quotes: "{name}"', file=file, line=line)
        if name in first_lines:
            what = f"stands here twice, first on line {first_lines[name]}"
            raise ConfigError(what, path=(*path, name), hint="keep one", file=file, line=line)
        first_lines[name] = line
        yield name, value
