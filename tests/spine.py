"""What a lesson's notebook keeps to: no answer before its question, and going back is safe."""

import ast
import re
import symtable
from contextlib import suppress
from dataclasses import dataclass, field

from course.notebooks import hosted
from course.predictions import ledger

_FOLD = re.compile(r"<details[^>]*>\s*(?:<summary>(.*?)</summary>)?.*?</details>", re.DOTALL)
_OURS = re.compile(
    r"\b(?:in|on) our (?:\w+ )?(?:run|machine|recording)s?\b"
    r"|\b(?:run|machine|recording)s? of ours\b|\bwe (?:recorded|counted|measured|found) ",
    re.IGNORECASE,
)
_NOT_WORDS = re.compile(r"^\|.*$|`[^`]*`|\]\([^)]*\)", re.MULTILINE)
_FIGURE, _WORD = re.compile(r"(?<![\w.])\d[\d,.]*"), re.compile(r"[A-Za-z]{2,}")


@dataclass
class Question:
    """Where in a notebook something is asked, gated and reconciled: indices of cells."""

    key: str
    unit: str = ""
    options: list = field(default_factory=list)
    asked: int | None = None
    gated: list = field(default_factory=list)
    reconciled: list = field(default_factory=list)
    answer: float | str | None = None
    """As the notebook's own text has it; None where it is computed."""


def nodes(source):
    """Everything in a cell's text, whose magic lines are left out."""
    return ast.walk(ast.parse(re.sub(r"^[%!].*$", "pass", source, flags=re.MULTILINE)))


def calls(notebook):
    """Every call, in the order of the text: its cell's index, its bare or last name, its node."""
    for place, cell in enumerate(notebook.cells):
        text = cell.source if cell.cell_type == "code" else ""
        found = [node for node in nodes(text) if isinstance(node, ast.Call)]
        for node in sorted(found, key=lambda node: (node.lineno, node.col_offset)):
            yield place, getattr(node.func, "id", getattr(node.func, "attr", "")), node


def constant(node):
    """What an expression of literals comes to; None for any other."""
    with suppress(ValueError):
        return ast.literal_eval(node)
    return None


def questions(notebook):
    """Find all predictions and votes, by key."""
    found = {}
    for place, name, call in calls(notebook):
        ours = call.args and name in ("predict", "choose", "gate", "reconcile")
        key = constant(call.args[0]) if ours else None
        if not isinstance(key, str):  # a method of the same name
            continue
        question = found.setdefault(key, Question(key))
        named = [w.value for w in call.keywords if w.arg in ("unit", "options", "measured")]
        match name:
            case "gate":
                question.gated.append(place)
            case "reconcile":
                question.reconciled.append(place)
                question.answer = constant((call.args[1:] + named)[0])
            case _:
                words = ledger.questions().get(key, {})
                given = [constant(argument) for argument in (*call.args[2:], *named)]
                given += [words.get("unit"), words.get("options")]
                question.asked = place
                question.unit = next((value for value in given if type(value) is str), "")
                question.options = next((value for value in given if type(value) is list), [])
    return {key: question for key, question in found.items() if question.asked is not None}


def order(notebook):
    """Name each question that is not asked, gated and reconciled in this order."""
    for q in questions(notebook).values():
        if not q.reconciled:
            yield f"{q.key} is never reconciled"
        elif not q.asked < min(q.gated, default=-1) <= min(q.reconciled):
            yield f"{q.key}: ask it, then gate the cell that shows the answer, then reconcile"
        for place in q.gated:
            first = notebook.cells[place].source.strip().splitlines()[0]
            if "gate(" not in first:
                yield f"{q.key}: the gate is the first line of its cell"


def given_away(notebook, results=None):
    """Name each answer that is seen before it is asked.

    `results`: what a run reconciled, by key; without, only what stands in the notebook is known.
    """
    for q in questions(notebook).values():
        last = max(q.reconciled, default=len(notebook.cells) - 1)
        for cell in notebook.cells[q.asked : last + 1]:
            if cell.get("outputs"):
                yield f"{q.key}: the stored output of {cell.id} stands before its reconciliation"
        answer = (results or {}).get(q.key, q.answer)
        if answer is None:
            continue
        for place, cell in enumerate(notebook.cells[:last]):
            read = cell.cell_type == "markdown" or place not in (q.asked, *q.reconciled)
            if read and (given_away := tells(cell, answer, q)):
                yield f"{q.key}: {cell.id} says {given_away!r}"


def visible(cell):
    """What is read of a cell's text while all folds are closed: of a fold, its summary."""
    return _FOLD.sub(lambda fold: fold[1] or "", cell.source)


def ours_in_sight(notebook):
    """Name each sentence that tells of a run of ours beside the learner's own, outside a fold."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield from (f"{cell.id}: {match[0]!r}" for match in _OURS.finditer(visible(cell)))


def figures_among(notebook):
    """Count the figures among 100 words that are read while all folds are closed.

    Fewer words than 100 count as 100.
    """
    texts = [visible(cell) for cell in notebook.cells if cell.cell_type == "markdown"]
    prose = _NOT_WORDS.sub("", "\n".join(texts))
    return 100 * len(_FIGURE.findall(prose)) / max(100, len(_WORD.findall(prose)))


def bound_twice(notebook):
    """Name what a cell takes from one of two: whoever went back to the other has the wrong one."""
    binding = {}
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        bound, taken = names(cell.source)
        for name in sorted(taken):
            if len(cells := binding.get(name, ())) > 1:
                yield f"{cell.id} takes {name!r}, which {' and '.join(cells)} bind"
        for name in bound:
            binding.setdefault(name, []).append(cell.id)


def names(source):
    """What a cell binds, and what it takes from earlier cells."""
    plain = re.sub(r"^[%!].*$", "pass", source, flags=re.MULTILINE)
    cell = symtable.symtable(plain, "cell", "exec")
    bound = {name.get_name() for name in cell.get_symbols() if name.is_assigned()}
    bound |= {name.get_name() for name in cell.get_symbols() if name.is_imported()}
    read = set()
    for scope in _scopes(cell):
        for name in scope.get_symbols():
            if name.is_referenced() and (scope is cell or name.is_global()):
                read.add(name.get_name())
    inner = _of_comprehensions(plain)
    return bound - inner, read - bound - inner


def _of_comprehensions(source):
    """Names that only comprehensions bind: from Python 3.12 on they count as the cell's own."""
    nodes = [*ast.walk(ast.parse(source))]
    targets = [node.target for node in nodes if isinstance(node, ast.comprehension)]
    inside = [name for target in targets for name in ast.walk(target)]
    stored = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return {n.id for n in stored if n in inside} - {n.id for n in stored if n not in inside}


def _scopes(outer):
    yield outer
    for inner in outer.get_children():
        yield from _scopes(inner)


def verdicts_in_sight(notebook):
    """Name each cell that shows the right letter to whoever scrolls on: such a cell is folded."""
    for place, name, call in calls(notebook):
        cell = notebook.cells[place]
        answer = call.args[1] if name == "reconcile" and len(call.args) > 1 else None
        if isinstance(answer, ast.IfExp):
            answer = answer.body
        if answer is None or not isinstance(constant(answer), str):
            continue  # no letter that one could read
        key = constant(call.args[0])
        if hosted.FOLDED not in cell.metadata.get("tags", []):
            yield f"{key}: fold {cell.id}, which says what is right"
        elif answer.lineno == 1:
            yield f"{key}: {cell.id} says what is right in its first line, which a fold shows"


def tells(cell, answer, question):
    """The words of a cell that are the answer to a question; nothing where there are none."""
    text = visible(cell)
    if cell.cell_type == "code":  # titles and other strings
        values = [node.value for node in nodes(text) if isinstance(node, ast.Constant)]
        text = "\n".join(value for value in values if isinstance(value, str))
    if isinstance(answer, str):
        place = "abcdefgh".find(answer)
        if place >= len(question.options):
            return ""
        named = [option for option in question.options if option.lower() in text.lower()]
        return named[0] if named == [question.options[place]] else ""
    times = question.unit in ("x", "times")
    unit = r"(?:x\b|×|times)" if times else re.escape(question.unit)
    for match in re.finditer(rf"(?<![\w.])(\d[\d,]*\.?\d*)\s*{unit}", text):
        figure = float(match[1].replace(",", ""))
        digits = len(match[1].replace(",", "").replace(".", "").strip("0"))
        if answer and digits > 1 and abs(figure / answer - 1) < 0.01:
            return match[0]
    return ""
