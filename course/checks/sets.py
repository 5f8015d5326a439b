"""Sets whose order is each rank's own, as under torchrun, where each process draws how texts hash.

Ranks that `launch` forks hash alike, so that an order that comes from a set would look right here.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist


class OwnSet(set):
    """A set whose order depends on the rank, and so does that of all sets made of it."""

    def __iter__(self) -> Iterator:
        return iter(sorted(super().__iter__(), key=str, reverse=dist.get_rank() % 2 > 0))

    def __reduce__(self) -> tuple:
        """Travel to the ranks without an order, which it gets there."""
        return OwnSet, ([*super().__iter__()],)

    def pop(self) -> Any:
        """Take out the first one of this order."""
        first = next(iter(self))
        self.remove(first)
        return first

    @classmethod
    def of(cls, value: Any) -> Any:
        """Return such a set of a set; anything else as it is."""
        return cls(value) if isinstance(value, set | frozenset) else value


def own_sets(program: Callable) -> Callable:
    """Return a program whose sets have an order of the rank's own, however its lines make them.

    So have those of its module, and of its module's functions that it calls. One whose source is
    not known, or that takes names from around it, stays as it is.
    """
    if not _definition(program):
        return program
    names = {name: OwnSet.of(value) for name, value in program.__globals__.items()}
    names[_Sets.BY] = OwnSet.of
    waiting, seen = [program], set()
    while waiting:
        function = waiting.pop()
        tree = _definition(function)
        if not tree or function in seen:
            continue
        seen.add(function)
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        called = (program.__globals__.get(name) for name in used)
        waiting += [x for x in called if getattr(x, "__globals__", None) is program.__globals__]
        ast.increment_lineno(_Sets().visit(tree), function.__code__.co_firstlineno - 1)
        ast.fix_missing_locations(tree)
        exec(compile(tree, function.__code__.co_filename, "exec"), names)
    return names[program.__name__]


def _definition(function: Callable) -> ast.Module | None:
    """Return the `def` of a function; None where it is made in another way."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (TypeError, OSError, SyntaxError):
        return None
    is_def = len(tree.body) == 1 and isinstance(tree.body[0], ast.FunctionDef)
    return tree if is_def and not function.__closure__ else None


class _Sets(ast.NodeTransformer):
    """Hands to `OwnSet.of` what a display, a comprehension, a call or an operator gives."""

    BY = "__own_set__"  # a name that no program has

    def visit(self, node: ast.AST) -> ast.AST:
        visited = self.generic_visit(node)
        if not isinstance(visited, ast.Set | ast.SetComp | ast.Call | ast.BinOp):
            return visited
        name = ast.Name(self.BY, ast.Load())
        return ast.copy_location(ast.Call(name, [visited], []), visited)
