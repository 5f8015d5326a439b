"""A form in a notebook: what was typed comes in one message, when the learner hands it over.

A form of separate widgets sends the state of each on its own way, and later than a click or Enter:
far from its kernel, or beside a busy one, it commits the half of a figure. This one is drawn by
`form.js`; its buttons send the values of all fields with their own message.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anywidget
import traitlets

WAITING = "On its way. The kernel is busy, or far away: it answers when it is free."
_HERE = Path(__file__).parent
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Field:
    """A line to type into."""

    name: str
    label: str
    unit: str = ""
    hint: str = ""
    size: int = 8  # characters that it shows
    figure: bool = True


@dataclass(frozen=True, slots=True)
class Reply:
    """What the kernel says to what was handed over."""

    text: str
    error: bool = False  # it was refused: what was typed stays as it is, and so does the focus
    open: bool = True  # whether something may still be handed over
    values: Mapping[str, str] | None = None  # what the fields hold from now on; None leaves them
    stay: bool = False  # leave the focus on the button that was pressed
    running: bool = False  # not the last word: until that comes, nothing more can be handed over


class Form(anywidget.AnyWidget):
    """A question with its fields, options and buttons.

    Args:
        name: Class of its element in the page.
        heading: What stands in bold before the text.
        text: The question.
        options: Letter -> text, of which one is chosen; it comes as the value `answer`.
        rows: Fields to type into, by lines, each with what stands before it.
        buttons: Name -> what stands on it. Enter presses `commit`, where there is one.
        act: Gets the name of the button that was pressed, and what was typed by field.
        first: What it says before anything is handed over.
    """

    _esm = (_HERE / "form.js").read_text(encoding="utf-8")
    _css = (_HERE / "form.css").read_text(encoding="utf-8")
    ask = traitlets.Dict().tag(sync=True)
    reply = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        name: str,
        heading: str,
        text: str,
        *,
        options: Mapping[str, str] | None = None,
        rows: Sequence[tuple[str, Sequence[Field]]] = (),
        buttons: Mapping[str, str],
        act: Callable[[str, dict[str, str]], Reply],
        first: Reply | None = None,
    ):
        drawn = [{"text": before, "fields": list(map(asdict, fields))} for before, fields in rows]
        pressed = [
            {"name": key, "label": label, "first": key == "commit"}
            for key, label in buttons.items()
        ]
        question = {
            "name": name, "heading": heading, "text": text, "rows": drawn, "buttons": pressed,
            "options": list(map(list, (options or {}).items())), "waiting": WAITING,
        }  # fmt: skip
        super().__init__(ask=question)
        self._act = act
        self.say(first or Reply(""))
        self.on_msg(self._take)

    def say(self, reply: Reply) -> None:
        """Show a reply."""
        # The number makes the same words once more a change, too.
        self.reply = {"number": next(_numbers), **asdict(reply)}

    def _take(self, _: Any, content: Any, __: Any) -> None:
        if isinstance(content, dict) and "do" in content:
            given = {str(k): str(v) for k, v in dict(content.get("values") or {}).items()}
            try:
                reply = self._act(str(content["do"]), given)
            except Exception as error:  # without a reply the page would wait for one for ever
                reply = Reply(f"Not kept: {error}", error=True)
            self.say(reply)
