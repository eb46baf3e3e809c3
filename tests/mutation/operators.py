"""Mutation operators: every one-line change of a module's text that the standard operators propose.

Positions come from `ast` and the change is made in the text, so that a mutant keeps the file's formatting. Libraries were
looked at first: cosmic-ray has no operator that removes a statement, a `raise` or a returned value.

Left out, since no test should be needed for them: annotations, decorators, docstrings, `__all__`, texts for people (a
string with a space, an f-string) and conditions on `TYPE_CHECKING`.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[str, ...]] = {
    ast.Lt: ("<=", ">="),
    ast.LtE: ("<", ">"),
    ast.Gt: (">=", "<="),
    ast.GtE: (">", "<"),
    ast.Eq: ("!=",),
    ast.NotEq: ("==",),
    ast.Is: ("is not",),
    ast.IsNot: ("is",),
    ast.In: ("not in",),
    ast.NotIn: ("in",),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
NARROWER = {
    "Exception": "ValueError",
    "OSError": "ConnectionResetError",
    "ConnectionError": "ConnectionResetError",
    "LookupError": "KeyError",
    "ValueError": "UnicodeError",
    "RuntimeError": "RecursionError",
}


@dataclass(frozen=True)
class Mutation:
    """One line of a module, numbered from 1, before and after a change; both without indentation."""

    line: int
    operator: str
    before: str
    after: str


@dataclass(frozen=True)
class _Edit:
    """Bytes of one line, from `start` to `end`, to be replaced."""

    line: int
    start: int
    end: int
    text: str


def mutations(source: str) -> list[Mutation]:
    """Return the changes that the operators propose for a module, in the order of lines; some may not compile."""
    lines = source.splitlines()
    found = set()
    for node in _mutable(ast.parse(source)):
        for operator, edits in _OPERATORS.items():
            for edit in edits(node, lines):
                raw = lines[edit.line - 1].encode()
                after = (raw[: edit.start] + edit.text.encode() + raw[edit.end :]).decode()
                found.add(Mutation(edit.line, operator, lines[edit.line - 1].strip(), after.strip()))
    return sorted(found, key=lambda mutation: (mutation.line, mutation.operator, mutation.after))


def applied(source: str, line: int, after: str) -> str:
    """Return a module's text with one line, numbered from 1, replaced; the indentation stays."""
    lines = source.splitlines()
    before = lines[line - 1]
    lines[line - 1] = before[: len(before) - len(before.lstrip())] + after
    return "\n".join(lines) + "\n"


def differs(source: str, mutation: Mutation) -> bool:
    """Tell whether a mutant compiles and is more than another layout of the same code."""
    try:
        tree = ast.parse(applied(source, mutation.line, mutation.after))
        compile(tree, "mutant", "exec")
    except SyntaxError:
        return False
    return ast.dump(tree) != ast.dump(ast.parse(source))


def _mutable(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes whose change a test should notice."""
    yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "format_spec"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _declares(child):
                yield from _mutable(child)


def _declares(node: ast.AST) -> bool:
    match node:
        case ast.Expr(value=ast.Constant()) | ast.JoinedStr() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Assign(targets=[ast.Name(id="__all__")]) | ast.Subscript(value=ast.Name(id="Literal")):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
    return False


def _comparisons(node: ast.AST, lines: list[str]) -> Iterator[_Edit]:
    if isinstance(node, ast.Compare):
        for left, operator, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            for text in COMPARISONS[type(operator)]:
                yield from _between(left, right, r"<=|>=|==|!=|<|>|is\s+not|is|not\s+in|in", text, lines)


def _arithmetic(node: ast.AST, lines: list[str]) -> Iterator[_Edit]:
    match node:
        case ast.BinOp(left=left, right=right) if not _is_text(left) and not _is_text(right):
            pass
        case ast.AugAssign(target=left, value=right):
            pass
        case _:
            return
    before, after = ARITHMETIC.get(type(node.op), ("", ""))
    if before:
        yield from _between(left, right, re.escape(before), after, lines)


def _connectives(node: ast.AST, lines: list[str]) -> Iterator[_Edit]:
    if isinstance(node, ast.BoolOp):
        before, after = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            yield from _between(left, right, rf"\b{before}\b", after, lines)


def _negations(node: ast.AST, lines: list[str]) -> Iterator[_Edit]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and node.lineno == node.operand.lineno:
        yield _Edit(node.lineno, node.col_offset, node.operand.col_offset, "")


def _constants(node: ast.AST, lines: list[str]) -> Iterator[_Edit]:
    match node:
        case ast.Constant(value=bool(value)):
            yield from _whole(node, str(not value))
        case ast.Constant(value=int(value) | float(value)):
            yield from _whole(node, repr(value + 1))
        case ast.Constant(value=str(value)) if value and " " not in value:
            yield from _whole(node, '""')


def _conditions(node: ast.AST, lines: list[str]) -> Iterator[_Edit]:
    if isinstance(node, ast.If | ast.IfExp):
        yield from _whole(node.test, "True")
        yield from _whole(node.test, "False")
    elif isinstance(node, ast.comprehension):
        for test in node.ifs:
            yield from _whole(test, "True")


def _removals(node: ast.AST, lines: list[str]) -> Iterator[_Edit]:
    """Remove a statement that has an effect other than to bind a local name."""
    match node:
        case ast.Expr() | ast.AugAssign() | ast.Delete() | ast.Continue() | ast.Break():
            yield from _whole(node, "pass")
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            yield from _whole(node, "pass")


def _raises(node: ast.AST, lines: list[str]) -> Iterator[_Edit]:
    if isinstance(node, ast.Raise):
        yield from _whole(node, "pass")


def _returns(node: ast.AST, lines: list[str]) -> Iterator[_Edit]:
    if isinstance(node, ast.Return) and node.value is not None:
        yield from _whole(node, "return None")


def _defaults(node: ast.AST, lines: list[str]) -> Iterator[_Edit]:
    """Change a parameter's default; one that is None becomes 0, and the others change as constants do."""
    if isinstance(node, ast.arguments):
        for default in [*node.defaults, *node.kw_defaults]:
            if isinstance(default, ast.Constant) and default.value is None:
                yield from _whole(default, "0")


def _handlers(node: ast.AST, lines: list[str]) -> Iterator[_Edit]:
    """Narrow what a handler catches: one class fewer, a subclass, or nothing."""
    match node:
        case ast.ExceptHandler(type=ast.Tuple(elts=elements) as caught):
            for dropped in elements:
                kept = "".join(f"{ast.unparse(element)}, " for element in elements if element is not dropped)
                yield from _whole(caught, f"({kept.strip()})")
        case ast.ExceptHandler(type=ast.expr() as caught):
            yield from _whole(caught, NARROWER.get(ast.unparse(caught), "()"))


def _whole(node: ast.expr | ast.stmt, text: str) -> Iterator[_Edit]:
    if node.lineno == node.end_lineno:
        yield _Edit(node.lineno, node.col_offset, node.end_col_offset or 0, text)


def _between(left: ast.expr, right: ast.expr, pattern: str, text: str, lines: list[str]) -> Iterator[_Edit]:
    """Replace the operator that stands between two operands of one line."""
    if left.end_lineno != right.lineno:
        return
    start = left.end_col_offset or 0
    found = re.search(pattern, lines[right.lineno - 1].encode()[start : right.col_offset].decode())
    if found:
        yield _Edit(right.lineno, start + found.start(), start + found.end(), text)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


_OPERATORS: dict[str, Callable[[ast.AST, list[str]], Iterator[_Edit]]] = {
    "comparison": _comparisons,
    "arithmetic": _arithmetic,
    "connective": _connectives,
    "negation": _negations,
    "constant": _constants,
    "condition": _conditions,
    "removed statement": _removals,
    "removed raise": _raises,
    "return": _returns,
    "default": _defaults,
    "exception": _handlers,
}
