"""Where a source file can be changed, and to what: the mutants of one file.

Left alone are types, texts, log messages, metrics, and constants of a module, which only tune: a change there
says nothing about the tests.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from itertools import pairwise

# Calls that only tell somebody what happened.
TELLING = frozenset(("report", "observe", "info", "warning", "debug"))
FLIPPED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.Delete)


@dataclass(frozen=True)
class Mutant:
    path: str  # relative to the root
    line: int
    kind: str
    start: int  # of the replaced text in the file, in characters
    end: int
    text: str  # what comes there instead

    def applied(self, source: str) -> str:
        return source[: self.start] + self.text + source[self.end :]


class Sites(ast.NodeVisitor):
    """All mutants of one file that could make a difference."""

    def __init__(self, path: str, source: str) -> None:
        self._path = path
        self._source = source
        starts = [0]
        for line in source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self._starts = starts
        self._lines = source.splitlines()
        self._depth = 0  # of functions
        self.found: list[Mutant] = []
        self.visit(ast.parse(source))

    def _position(self, line: int, column: int) -> int:
        # columns count bytes of UTF-8
        text = self._lines[line - 1].encode()[:column].decode() if self._lines else ""
        return self._starts[line - 1] + len(text)

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self._position(node.lineno, node.col_offset), self._position(end_line, end_column)

    def _add(self, node: ast.AST, kind: str, start: int, end: int, text: str) -> None:
        if self._depth and self._source[start:end] != text:
            assert isinstance(node, ast.expr | ast.stmt)
            self.found.append(Mutant(self._path, node.lineno, kind, start, end, text))

    # what is left alone

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name in ("__repr__", "__str__") or _is_abstract(node):
            return
        self._depth += 1
        for statement in node.body:
            self.visit(statement)
        self._swap_neighbours(node.body)
        self._depth -= 1

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        return

    def visit_Raise(self, node: ast.Raise) -> None:
        return

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        return

    def visit_If(self, node: ast.If) -> None:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            return
        self._negate(node.test)
        self._visit_block(node)

    def visit_While(self, node: ast.While) -> None:
        self._visit_block(node)

    def visit_For(self, node: ast.For) -> None:
        self._visit_block(node)

    def visit_With(self, node: ast.With) -> None:
        self._visit_block(node)

    def visit_Try(self, node: ast.Try) -> None:
        self._visit_block(node)

    def _visit_block(self, node: ast.AST) -> None:
        self.generic_visit(node)
        for name in ("body", "orelse", "finalbody"):
            self._swap_neighbours(getattr(node, name, []))

    # what is changed

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        start, end = self._span(test)
        text = self._source[start:end]
        self._add(test, "condition negated", start, end, f"not ({text})")

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            start, end = self._span(node.left)[1], self._span(node.comparators[0])[0]
            between = self._source[start:end]
            if "(" not in between and ")" not in between and "\n" not in between:
                self._add(node, "comparison flipped", start, end, f" {FLIPPED[type(node.ops[0])]} ")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        start, end = self._span(node)
        other: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        text = "(" + ast.unparse(ast.BoolOp(op=other, values=node.values)) + ")"
        self._add(node, "and/or exchanged", start, end, text)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            start, end = self._span(node)
            inner_start, inner_end = self._span(node.operand)
            self._add(node, "not left out", start, end, self._source[inner_start:inner_end])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        start, end = self._span(node)
        if isinstance(node.value, bool):
            self._add(node, "boolean changed", start, end, str(not node.value))
        elif isinstance(node.value, int):
            self._add(node, "constant + 1", start, end, str(node.value + 1))
            if node.value:
                self._add(node, "constant - 1", start, end, str(node.value - 1))

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Add | ast.Sub) and not isinstance(node.left, ast.Constant | ast.JoinedStr):
            start, end = self._span(node.left)[1], self._span(node.right)[0]
            if self._source[start:end].strip() in ("+", "-"):
                sign = " - " if isinstance(node.op, ast.Add) else " + "
                self._add(node, "sign changed", start, end, sign)
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) or _is_telling(node):
            return
        if isinstance(node.value, ast.Call):
            start, end = self._span(node)
            self._add(node, "call left out", start, end, "pass")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            start, end = self._span(node)
            self._add(node, "returns None", start, end, "return None")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        if "__slots__" not in names:
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        start, end = self._span(node)
        if "metrics" not in self._source[start:end]:
            if isinstance(node.op, ast.Add | ast.Sub):
                operator = "-=" if isinstance(node.op, ast.Add) else "+="
                before, after = self._span(node.target)[1], self._span(node.value)[0]
                self._add(node, "sign changed", before, after, f" {operator} ")
            self.generic_visit(node)

    def _swap_neighbours(self, body: list[ast.stmt]) -> None:
        for first, second in pairwise(body):
            if not isinstance(first, SIMPLE) or not isinstance(second, SIMPLE):
                continue
            if _is_text(first) or _is_telling(first) or _is_telling(second):
                continue
            if not _has_effect(first) or not _has_effect(second):
                continue  # two values that are only named do not care about their order
            (start, middle), (begin, end) = self._span(first), self._span(second)
            text = self._source[begin:end] + self._source[middle:begin] + self._source[start:middle]
            self._add(first, "statements swapped", start, end, text)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_telling(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Call):
        return False
    called = node.value.func
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name in TELLING


def _has_effect(node: ast.stmt) -> bool:
    """Whether somebody else may see it: a call, or an assignment to an attribute or an item."""
    if isinstance(node, ast.Expr | ast.Delete):
        return True
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]  # type: ignore[attr-defined]
    calls = any(isinstance(inner, ast.Call) for inner in ast.walk(node))
    return calls and not all(isinstance(target, ast.Name) for target in targets)


def _is_abstract(node: ast.FunctionDef) -> bool:
    last = node.body[-1]
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Constant) and last.value.value is ...:
        return True
    return len(node.body) <= 2 and isinstance(last, ast.Raise)
