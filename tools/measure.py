"""The state of the house in numbers: `python tools/measure.py [ROOT ...] [--json FILE]`.

Every ROOT is a checkout (this one unless told otherwise) and a column of the table printed; every
row is counted over its src/itofit, by reading the files and never by importing them:

- A code line holds code: not blank, no comment alone, no part of a docstring (any string that
  stands alone as a statement).
- Tokens are names, operators, numbers and strings; an f-string is one.
- A function's length is that of its signature and body, docstring removed, and its nested
  functions are counted both in it and by themselves. Its arguments are those with a name of their
  own: no self, cls, *args or **kwargs.
- A method or property overrides when an ancestor inside the package defines one of its name that
  is not abstract. Methods such as __call__ are left out.
- A tuple of more than two is counted wherever it stands in what a function is annotated to return.
- A room is a folder or file at the first level. A cycle is a group of rooms, or of files, that can
  all be reached from one another by imports at the top of a file. That importing a.b also runs the
  __init__ of a is no import.
- Two places are duplicates when they share a run of 6 or more code lines, whitespace folded and
  imports skipped. A run is as long as it can be, and every pair of places counts once.
"""

import argparse
import ast
import functools
import io
import json
import math
import statistics
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

PACKAGE = "itofit"
LONG_LINE = 100
LONG_FUNCTION = 50
MANY_ARGUMENTS = 8
SHORTEST_RUN = 6
EMPTY_NAMES = frozenset({"found", "how", "asked", "share", "kept", "moved"})
COUNTED_TOKENS = frozenset({tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING})
# From Python 3.12 on an f-string comes in pieces, which are put together again.
STRING_OPENS = frozenset(getattr(tokenize, f"{kind}STRING_START", -1) for kind in "FT")
STRING_CLOSES = frozenset(getattr(tokenize, f"{kind}STRING_END", -1) for kind in "FT")

Function = ast.FunctionDef | ast.AsyncFunctionDef
Graph = dict[str, set[str]]


class Token(NamedTuple):
    """Where a token of code begins and ends, each as (line, column)."""

    start: tuple[int, int]
    end: tuple[int, int]


class Place(NamedTuple):
    """Where a run begins: the module's name, and which of its code lines, from 0."""

    module: str
    line: int


@dataclass(frozen=True)
class Module:
    """A file of the package, read once."""

    name: str  # dotted; a package has the name of its folder
    text: str

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the syntax tree, the module itself first."""
        return list(ast.walk(ast.parse(self.text)))

    @property
    def body(self) -> list[ast.stmt]:
        """The statements at the top level."""
        module = self.nodes[0]
        assert isinstance(module, ast.Module)
        return module.body

    @functools.cached_property
    def lines(self) -> list[str]:
        """The lines as written."""
        return self.text.split("\n")

    @functools.cached_property
    def tokens(self) -> list[Token]:
        """The tokens of code, docstrings left out."""
        docstrings = {_start(node) for node in self.nodes if _is_docstring(node)}
        return [token for token in _tokens(self.text) if token.start not in docstrings]

    @functools.cached_property
    def code_lines(self) -> list[int]:
        """The numbers of the lines that hold code, from 1 and in order."""
        numbers = {n for token in self.tokens for n in range(token.start[0], token.end[0] + 1)}
        return sorted(n for n in numbers if self.lines[n - 1].strip())


def read_package(root: Path) -> list[Module]:
    """The modules of the package in a checkout."""
    source = root / "src"
    paths = sorted((source / PACKAGE).rglob("*.py"))
    return [Module(_dotted(path.relative_to(source)), path.read_text("utf-8")) for path in paths]


def _dotted(path: Path) -> str:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


# Lines and tokens


def _tokens(text: str) -> Iterator[Token]:
    depth = 0
    start = (0, 0)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if depth == 0:
            start = token.start
        depth += (token.type in STRING_OPENS) - (token.type in STRING_CLOSES)
        if depth == 0 and token.type in COUNTED_TOKENS | STRING_CLOSES:
            yield Token(start, token.end)


def _is_docstring(node: ast.AST) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
        return False
    return isinstance(node.value.value, str)


def _start(node: ast.AST) -> tuple[int, int]:
    """Where a statement begins, as (line, column)."""
    assert isinstance(node, ast.stmt)
    return node.lineno, node.col_offset


def _extent(node: ast.AST) -> range:
    """The numbers of the lines a statement stands on."""
    assert isinstance(node, ast.stmt)
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def count_code_lines(modules: Sequence[Module]) -> int:
    """Lines that hold code."""
    return sum(len(module.code_lines) for module in modules)


def tokens_per_line(modules: Sequence[Module]) -> float:
    """Tokens of code over lines of code."""
    n_tokens = sum(len(module.tokens) for module in modules)
    return round(n_tokens / max(count_code_lines(modules), 1), 2)


def count_long_lines(modules: Sequence[Module]) -> int:
    """Lines of any kind that are too long."""
    return sum(len(line) > LONG_LINE for module in modules for line in module.lines)


# Functions


def _nodes(modules: Sequence[Module]) -> Iterator[ast.AST]:
    for module in modules:
        yield from module.nodes


def _functions(modules: Sequence[Module]) -> Iterator[Function]:
    return (node for node in _nodes(modules) if isinstance(node, Function))


def _length(function: Function) -> int:
    first = function.body[0]
    docstring = len(_extent(first)) if _is_docstring(first) else 0
    return len(_extent(function)) - docstring


def _arguments(function: Function) -> list[str]:
    arguments = function.args
    names = [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def median_length(modules: Sequence[Module]) -> float:
    """Half of the functions are no longer than this."""
    return statistics.median([_length(function) for function in _functions(modules)] or [0])


def length_90(modules: Sequence[Module]) -> int:
    """Nine functions of ten are no longer than this."""
    lengths = sorted(_length(function) for function in _functions(modules)) or [0]
    return lengths[math.ceil(0.9 * len(lengths)) - 1]


def count_long_functions(modules: Sequence[Module]) -> int:
    """Functions that are too long."""
    return sum(_length(function) > LONG_FUNCTION for function in _functions(modules))


def count_many_arguments(modules: Sequence[Module]) -> int:
    """Functions with too many arguments."""
    return sum(len(_arguments(function)) >= MANY_ARGUMENTS for function in _functions(modules))


def _is_wide_tuple(node: ast.AST) -> bool:
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Tuple):
        return False
    is_tuple = ast.unparse(node.value).split(".")[-1] in ("tuple", "Tuple")
    return is_tuple and len(node.slice.elts) > 2


def count_wide_returns(modules: Sequence[Module]) -> int:
    """Functions annotated to return tuples of more than two."""
    annotations = [f.returns for f in _functions(modules) if f.returns is not None]
    return sum(any(map(_is_wide_tuple, ast.walk(annotation))) for annotation in annotations)


# Statements and names


def _is_packing(node: ast.AST) -> bool:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    return any(isinstance(target, ast.Tuple) for target in node.targets)


def _unpacks_name(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return any(k.arg is None and isinstance(k.value, ast.Name) for k in node.keywords)


def _is_empty_name(node: ast.AST) -> bool:
    if isinstance(node, ast.arg):
        return node.arg in EMPTY_NAMES
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id in EMPTY_NAMES
    return False


def count_packings(modules: Sequence[Module]) -> int:
    """Assignments of a tuple written out to a tuple of names."""
    return sum(map(_is_packing, _nodes(modules)))


def count_unpackings(modules: Sequence[Module]) -> int:
    """Calls that unpack a named dictionary into keywords."""
    return sum(map(_unpacks_name, _nodes(modules)))


def count_empty_names(modules: Sequence[Module]) -> int:
    """Variables and parameters whose name says nothing."""
    return sum(map(_is_empty_name, _nodes(modules)))


# Classes


@dataclass(frozen=True)
class Inheritance:
    """Who inherits from whom in the package, by dotted names."""

    classes: dict[str, ast.ClassDef]
    bindings: dict[str, dict[str, str]]  # module -> name in it -> what the name stands for

    @classmethod
    def of(cls, modules: Sequence[Module]) -> "Inheritance":
        """That of these modules."""
        classes = {
            f"{module.name}.{node.name}": node
            for module in modules
            for node in module.nodes
            if isinstance(node, ast.ClassDef)
        }
        return cls(classes, {module.name: _bindings(module) for module in modules})

    def parents(self, name: str) -> Iterator[str]:
        """The classes of the package that a class names as its bases."""
        for base in self.classes[name].bases:
            expression = base.value if isinstance(base, ast.Subscript) else base
            parent = self._resolve(ast.unparse(expression), name)
            if parent is not None:
                yield parent

    def overrides(self) -> Graph:
        """For every class its methods that an ancestor defines already, and not as abstract."""
        graph = {name: set(self.parents(name)) for name in self.classes}
        overridden: Graph = {}
        for name, node in self.classes.items():
            ancestors = _reachable(graph, name) - {name}
            concrete = (_concrete(_methods(self.classes[ancestor])) for ancestor in ancestors)
            overridden[name] = _names(_methods(node)) & set().union(*concrete)
        return overridden

    def _resolve(self, base: str, child: str) -> str | None:
        """The class of the package that is a child's base, followed through imports."""
        module = child.rpartition(".")[0]
        name = f"{module}.{base}"
        visited = set()
        # A class may bear the name of the one it inherits from and imports.
        while name == child or name not in self.classes:
            head, _, rest = name.removeprefix(f"{module}.").partition(".")
            target = self.bindings.get(module, {}).get(head)
            if target is None or name in visited:
                return None
            visited.add(name)
            name = f"{target}.{rest}".removesuffix(".")
            module = _longest_prefix(name, self.bindings) or ""
        return name


def _bindings(module: Module) -> dict[str, str]:
    """What the imported names of a module stand for."""
    names = {}
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom):
            names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
        elif isinstance(node, ast.Import):
            tops = {a.name.split(".")[0] for a in node.names if a.asname is None}
            names |= {top: top for top in tops}
            names |= {a.asname: a.name for a in node.names if a.asname is not None}
    return names


def _methods(node: ast.ClassDef) -> list[Function]:
    """The methods and properties a class defines, those of the language left out."""
    functions = [item for item in node.body if isinstance(item, Function)]
    return [f for f in functions if not (f.name.startswith("__") and f.name.endswith("__"))]


def _names(functions: Iterable[Function]) -> set[str]:
    return {function.name for function in functions}


def _concrete(functions: Iterable[Function]) -> set[str]:
    return _names(function for function in functions if not _is_abstract(function))


def _is_abstract(function: Function) -> bool:
    decorators = [ast.unparse(decorator) for decorator in function.decorator_list]
    return any(name.split(".")[-1] == "abstractmethod" for name in decorators)


def count_overrides(modules: Sequence[Module]) -> int:
    """Methods and properties written over ones that were not abstract."""
    return sum(map(len, Inheritance.of(modules).overrides().values()))


# Imports


def _longest_prefix(name: str, modules: Iterable[str]) -> str | None:
    """The module that a dotted name lies in, or is."""
    owners = [module for module in modules if f"{name}.".startswith(f"{module}.")]
    return max(owners, key=len, default=None)


def _top_imports(body: Iterable[ast.AST]) -> Iterator[str]:
    """The dotted names that are imported when a module is."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            yield from _top_imports(node.orelse)
        elif isinstance(node, ast.If | ast.Try | ast.ExceptHandler | ast.With):
            yield from _top_imports(ast.iter_child_nodes(node))


def _file_graph(modules: Sequence[Module]) -> Graph:
    """Which modules each module imports."""
    names = [module.name for module in modules]
    graph: Graph = {}
    for module in modules:
        targets = (_longest_prefix(name, names) for name in _top_imports(module.body))
        graph[module.name] = {target for target in targets if target is not None}
    return graph


def _room(name: str) -> str:
    return ".".join(name.split(".")[:2])


def _room_graph(modules: Sequence[Module]) -> Graph:
    """Which rooms each room imports."""
    graph: Graph = defaultdict(set)
    for name, targets in _file_graph(modules).items():
        graph[_room(name)] |= {_room(target) for target in targets}
    return graph


def _reachable(graph: Graph, start: str) -> set[str]:
    reached: set[str] = set()
    waiting = set(graph[start])
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= graph[name] - reached
    return reached


def cycles(graph: Graph) -> set[frozenset[str]]:
    """The groups of more than one that can all be reached from one another."""
    reachable = {name: _reachable(graph, name) for name in graph}
    groups = {
        frozenset(other for other in reachable[name] if name in reachable[other]) for name in graph
    }
    return {group for group in groups if len(group) > 1}


def count_room_cycles(modules: Sequence[Module]) -> int:
    """Groups of rooms that import one another."""
    return len(cycles(_room_graph(modules)))


def count_file_cycles(modules: Sequence[Module]) -> int:
    """Groups of files that import one another."""
    return len(cycles(_file_graph(modules)))


# Duplicates


def _folded(module: Module) -> list[str]:
    """The code lines without imports, whitespace folded."""
    imports = (node for node in module.nodes if isinstance(node, ast.Import | ast.ImportFrom))
    skipped = {n for node in imports for n in _extent(node)}
    return [" ".join(module.lines[n - 1].split()) for n in module.code_lines if n not in skipped]


def _continues(first: Place, second: Place, lines: dict[str, list[str]]) -> bool:
    """Whether the run shared by two places began before them."""
    if first.line == 0 or second.line == 0:
        return False
    return lines[first.module][first.line - 1] == lines[second.module][second.line - 1]


def _overlap(first: Place, second: Place) -> bool:
    return first.module == second.module and abs(first.line - second.line) < SHORTEST_RUN


def count_duplicates(modules: Sequence[Module]) -> int:
    """Pairs of places that share a run of code lines."""
    lines = {module.name: _folded(module) for module in modules}
    places: dict[tuple[str, ...], list[Place]] = defaultdict(list)
    for name, folded in lines.items():
        for i in range(len(folded) - SHORTEST_RUN + 1):
            places[tuple(folded[i : i + SHORTEST_RUN])].append(Place(name, i))
    pairs = [pair for same in places.values() for pair in combinations(same, 2)]
    return sum(not _overlap(*pair) and not _continues(*pair, lines) for pair in pairs)


# The table

ROWS: dict[str, Callable[[Sequence[Module]], float]] = {
    "files": len,
    "code lines": count_code_lines,
    "tokens a code line": tokens_per_line,
    "function length, median": median_length,
    "function length, p90": length_90,
    f"functions over {LONG_FUNCTION} lines": count_long_functions,
    f"functions of {MANY_ARGUMENTS} and more arguments": count_many_arguments,
    "overridden concrete methods": count_overrides,
    f"lines over {LONG_LINE} characters": count_long_lines,
    "tuple-to-tuple assignments": count_packings,
    "calls that unpack a **name": count_unpackings,
    "returned tuples of more than two": count_wide_returns,
    "names that say nothing": count_empty_names,
    "import cycles between rooms": count_room_cycles,
    "import cycles between files": count_file_cycles,
    "duplicated runs, pairs": count_duplicates,
}


def measure(root: Path) -> dict[str, float]:
    """The numbers of a checkout, by row."""
    modules = read_package(root)
    return {row: count(modules) for row, count in ROWS.items()}


def table(numbers: dict[str, dict[str, float]]) -> str:
    """The numbers of some checkouts, one column each."""
    cells = [["", *numbers]]
    cells += [[row, *(f"{column[row]:,}" for column in numbers.values())] for row in ROWS]
    first, *others = (max(map(len, column)) for column in zip(*cells, strict=True))
    lines = []
    for name, *values in cells:
        padded = (value.rjust(width) for value, width in zip(values, others, strict=True))
        lines.append("  ".join([name.ljust(first), *padded]))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table of the checkouts named, and write the numbers where asked."""
    here = Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description="Measure the state of the house.")
    parser.add_argument("roots", nargs="*", type=Path, default=[here], metavar="ROOT")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers here")
    options = parser.parse_args(arguments)
    for root in options.roots:
        if not (root / "src" / PACKAGE).is_dir():
            parser.error(f"expected a checkout, found no src/{PACKAGE} in {root}")
    numbers = {str(root): measure(root) for root in options.roots}
    print(table(numbers))
    if options.json is not None:
        options.json.write_text(json.dumps(numbers, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
