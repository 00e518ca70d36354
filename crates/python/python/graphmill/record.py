"""Results of commands: records with the fields of the commands' JSON."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, Iterator


#: Number of items of a longer list that the text of a record shows
SHOWN = 3
#: Records within records of which the text shows the names of the fields alone
DEPTH = 3


class Record(SimpleNamespace):
    """Result of a run or a command, with the fields of the command's JSON as attributes and by ``[]``.

    Its text leaves out most items of long lists and the values of deeper records; :meth:`to_dict`
    has all.
    """

    def __repr__(self) -> str:
        return _shown(self, 0)

    def __getitem__(self, name: str) -> Any:
        try:
            return vars(self)[name]
        except KeyError:
            raise KeyError(f"no field '{name}'; there are: {', '.join(vars(self))}") from None

    def __contains__(self, name: object) -> bool:
        return name in vars(self)

    def __iter__(self) -> Iterator[str]:
        return iter(vars(self))

    def __len__(self) -> int:
        return len(vars(self))

    def to_dict(self) -> dict[str, Any]:
        """Nested dictionaries with the same fields."""
        return {name: _plain(value) for name, value in vars(self).items()}


def _shown(value: Any, depth: int) -> str:
    """Text of a value within ``depth`` records."""
    if isinstance(value, Record):
        fields = vars(value).items()
        texts = [name if depth >= DEPTH else f"{name}={_shown(each, depth + 1)}" for name, each in fields]
        return f"Record({', '.join(texts)})"
    if not isinstance(value, list):
        return repr(value)
    more = [f"... {len(value) - SHOWN} more"] if len(value) > 2 * SHOWN else []
    return f"[{', '.join([*(_shown(each, depth) for each in (value[:SHOWN] if more else value)), *more])}]"


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    return [_plain(each) for each in value] if isinstance(value, list) else value


def record_of(text: str) -> Any:
    """Converts JSON to records."""
    return json.loads(text, object_hook=lambda values: Record(**values))
