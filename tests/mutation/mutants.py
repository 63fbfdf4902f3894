"""Mutants of a module: copies with one small mistake each, as a programmer makes them.

A mistake is a comparison that is off by one, a lost `not`, `and` for `or`, `+` for `-`, another number, a branch taken
the other way round, a lost statement, a lost row of a table. Texts are left alone: a message may be worded in any way.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

_COMPARISONS: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
_FUNCTIONS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """One mistake.

    place: the qualified name of the function, or the name of a table of the module.
    line: of the unchanged source.
    code: the compiled function; of a table, its compiled value.
    number: tells apart mutants of a place that read the same.
    """

    place: str
    line: int
    before: str
    after: str
    code: CodeType
    is_function: bool
    number: int = 1

    def __str__(self) -> str:
        number = f" ({self.number})" if self.number > 1 else ""
        return f"{self.place}: {self.before} → {self.after}{number}"


def mutants_of(source: str, path: str) -> Iterator[Mutant]:
    """Yields the mutants of a module's functions, methods and tables, in the order of the source.

    path: where tracebacks say that the code is.
    """
    tree = ast.parse(source)
    seen: dict[tuple[str, str, str], int] = {}
    for owner, place in _places(tree):
        for node in list(_mutable(owner)):
            for changed in _changes(node):
                before, after = (_text(one) for one in (node, changed))
                number = seen[place, before, after] = seen.get((place, before, after), 0) + 1
                code = _compiled(tree, owner, node, changed, place, path)
                line = (node.target if isinstance(node, ast.comprehension) else node).lineno  # type: ignore[attr-defined]
                yield Mutant(place, line, before, after, code, not isinstance(owner, ast.AnnAssign), number)


def _places(tree: ast.AST, prefix: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Yields functions and methods, not those inside them, and constants of the module that are tables."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node, prefix + name
            case ast.ClassDef(name=name):
                yield from _places(node, f"{prefix}{name}.")
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict() | ast.Call(args=[ast.Dict()])) if not prefix:
                yield node, name


def _mutable(owner: ast.AST) -> Iterator[ast.AST]:
    """Yields what is executed: no annotations, defaults, decorators, or texts."""
    roots: list[ast.AST] = []
    match owner:
        case ast.FunctionDef(body=body) | ast.AsyncFunctionDef(body=body):
            roots = list(body)
        case ast.AnnAssign(value=ast.Dict() | ast.Call() as value):
            roots = [value]
    while roots:
        node = roots.pop(0)
        if isinstance(node, ast.JoinedStr):
            continue
        yield node
        if isinstance(node, ast.AnnAssign):
            roots[:0] = [node.value] if node.value is not None else []
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):  # one inside the function
            roots[:0] = [*node.args.defaults, *(one for one in node.args.kw_defaults if one is not None), *node.body]
        else:
            roots[:0] = ast.iter_child_nodes(node)


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    changed: Any = copy.deepcopy(node)
    match node:
        case ast.Compare(ops=operators):
            for i, operator in enumerate(operators):
                changed = copy.deepcopy(node)
                changed.ops[i] = _COMPARISONS[type(operator)]()
                yield changed
        case ast.BoolOp(op=operator, values=values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(op=operator) | ast.AugAssign(op=operator) if type(operator) in _OPERATORS:
            changed = copy.deepcopy(node)
            changed.op = _OPERATORS[type(operator)]()
            yield changed
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.IfExp() | ast.If():
            changed = copy.deepcopy(node)
            changed.test = ast.UnaryOp(ast.Not(), node.test)
            yield changed
        case ast.comprehension(ifs=conditions) if conditions:
            for i in range(len(conditions)):
                changed = copy.deepcopy(node)
                del changed.ifs[i]
                yield changed
        case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS:
            changed = copy.deepcopy(node)
            changed.func = ast.Name(_FUNCTIONS[name], ast.Load())
            yield changed
        case ast.Expr(value=ast.Call() as call):  # not `pass`: a function without its use of `super` is another one
            yield ast.Expr(ast.BoolOp(ast.And(), [ast.Constant(False), call]))
        case ast.Raise() | ast.Delete():
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()
        case ast.Slice(lower=lower, upper=upper, step=step):
            if lower is not None:
                yield ast.Slice(None, upper, step)
            if upper is not None:
                yield ast.Slice(lower, None, step)
        case ast.Dict(keys=keys, values=values):
            for i in range(len(keys)):
                yield ast.Dict(keys[:i] + keys[i + 1 :], values[:i] + values[i + 1 :])


def _text(node: ast.AST) -> str:
    """The first line, which is all of an expression."""
    if isinstance(node, ast.comprehension):
        return " ".join(f"if {ast.unparse(one)}" for one in node.ifs) or "no if"
    if isinstance(node, ast.Dict) and len(node.keys) > 1:
        return "{" + ", ".join("**" if key is None else ast.unparse(key) for key in node.keys) + "}"
    return ast.unparse(node).partition("\n")[0]


def _compiled(tree: ast.Module, owner: ast.AST, node: ast.AST, changed: ast.AST, place: str, path: str) -> CodeType:
    class Change(ast.NodeTransformer):
        def visit(self, visited: ast.AST) -> Any:
            return ast.copy_location(changed, node) if visited is node else self.generic_visit(visited)

    # a copy of everything above the node, so that the tree stays as it is
    memo: dict[int, Any] = {id(node): node}
    if isinstance(owner, ast.AnnAssign):
        assert owner.value is not None
        value = ast.fix_missing_locations(Change().visit(copy.deepcopy(owner.value, memo)))
        return compile(ast.Expression(value), path, "eval")
    module = ast.fix_missing_locations(Change().visit(copy.deepcopy(tree, memo)))
    return _nested(compile(module, path, "exec"), place)


def _nested(code: CodeType, place: str) -> CodeType:
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    while inner:
        one = inner.pop(0)
        if one.co_qualname == place:
            return one
        inner += [deeper for deeper in one.co_consts if isinstance(deeper, CodeType)]
    raise AssertionError(f"no function {place}")
