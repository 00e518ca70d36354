"""Results of commands: records with the fields of the commands' JSON."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, Iterator


class Record(SimpleNamespace):
    """Result of a run or a command, with the fields of the command's JSON as attributes and by ``[]``."""

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


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    return [_plain(each) for each in value] if isinstance(value, list) else value


def record_of(text: str) -> Any:
    """Converts JSON to records."""
    return json.loads(text, object_hook=lambda values: Record(**values))
