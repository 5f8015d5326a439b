"""Files from strangers: JSON that is bounded in size, depth and digits, and held to a schema.

What is wrong is said in one line without the stranger's control characters, so that a reader can
leave one file out and go on with the others.
"""

import functools
import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import fastjsonschema

MOST_BYTES = 64 * 2**20
MOST_DEPTH = 32
MOST_DIGITS = 18


def text(most: int = 300) -> dict[str, Any]:
    """Return the schema of a text in one line."""
    return {"type": "string", "maxLength": most, "pattern": "^[^\\x00-\\x1f\\x7f-\\x9f]*$"}


def table(properties: Mapping[str, Any], *, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the schema of an object with just these properties; all but `optional` are needed."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def array(items: Mapping[str, Any], *, most: int = 100_000) -> dict[str, Any]:
    """Return the schema of a list of such items."""
    return {"type": "array", "items": dict(items), "maxItems": most}


NUMBER: dict[str, Any] = {"type": "number"}
FIGURE: dict[str, Any] = {"type": ["number", "null"]}
BOOLEAN: dict[str, Any] = {"type": "boolean"}


def one_line(text: object, most: int = 400) -> str:
    """Return a text that may be a stranger's as one line that any terminal shows as it is."""
    return "".join(c if c.isprintable() else " " for c in str(text))[:most]


def load(path: Path, *, what: str, schemas: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Read a JSON file whose ``version`` says which of the schemas it keeps.

    `what` says what it should be: ``"hand-in of this course"``.

    Raises:
        ValueError: It is none; the message names the file and the reason, in one line.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > MOST_BYTES:
                raise ValueError(f"{size / 2**20:.0f} MiB; at most {MOST_BYTES // 2**20} are read")
            document = json.loads(
                file.read(MOST_BYTES + 1).decode(),
                parse_int=_int,
                parse_float=_float,
                parse_constant=_refuse,
            )
        _check_depth(document)
        return _checked(document, schemas)
    except RecursionError:
        reason = f"nested deeper than {MOST_DEPTH} levels"
    except json.JSONDecodeError as error:
        reason = f"no JSON: {error}"
    except (OSError, ValueError) as error:
        reason = str(error)
    raise ValueError(one_line(f"{path} is no {what}: {reason}"))


def _checked(document: Any, schemas: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is not int:
        raise ValueError("it names no version")
    if version not in schemas:
        raise ValueError(f"version {version}; this labkit reads {', '.join(map(str, schemas))}")
    try:
        return _validator(json.dumps(schemas[version]))(document)
    except fastjsonschema.JsonSchemaValueException as problem:
        raise ValueError(str(problem).replace("data.", "", 1)) from None


@functools.cache
def _validator(schema: str) -> Callable[[Any], Any]:
    return fastjsonschema.compile(json.loads(schema), use_default=False)


def _check_depth(document: Any) -> None:
    level, depth = [document], 0
    while level := [part for part in level if isinstance(part, dict | list)]:
        if (depth := depth + 1) > MOST_DEPTH:
            raise RecursionError
        inner = (part.values() if isinstance(part, dict) else part for part in level)
        level = [one for parts in inner for one in parts]


def _int(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits")
    return int(digits)


def _float(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        _refuse(digits)
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant[:20]} is no finite number")
