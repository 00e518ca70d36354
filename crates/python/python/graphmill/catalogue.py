"""Public datasets: a list of them, and their downloads."""

from __future__ import annotations

import os
from typing import Any

from . import _graphmill
from .progress import watch
from .record import Record, record_of


def datasets() -> list[Record]:
    """Public datasets that :func:`download` knows, like ``graphmill datasets``.

    Returns:
        A record per dataset, with ``name``, ``title``, ``task`` (``"single"``, ``"multi"``,
        ``"link"`` or ``"none"``), ``nodes``, ``edges``, ``features``, ``edge_features``,
        ``classes``, ``metric``, ``download_bytes``, ``imported_bytes``, ``licence``, ``citation``
        and ``files``. Bytes are ``None`` if they are unknown.

    Example:
        >>> import graphmill
        >>> {data.name: data.nodes for data in graphmill.datasets()}["cora"]
        2708
    """
    entries: list[Record] = record_of(_graphmill.datasets())
    return entries


def download(
    name: str,
    out: str | os.PathLike[str] | None = None,
    *,
    mirror: str | None = None,
    verify: bool = True,
    progress: bool | None = None,
) -> Record:
    """Downloads the files of a public dataset, verifies and unpacks them.

    An interrupted download resumes when it is called again. The result has the arguments of
    :func:`import_dataset`: ``import_dataset(got.format, got.source, "cora", **got.options)``.

    Args:
        name: Name of a dataset of :func:`datasets`.
        out: Directory for the files. Default: ``NAME-raw``.
        mirror: Web server to use instead of the original sources: files come from
            ``MIRROR/NAME/FILE``.
        verify: If false, files whose length or checksum differs are accepted.
        progress: Shows progress. ``None`` shows it on a terminal or in a notebook.

    Returns:
        ``directory``; ``files``, a record per file with ``bytes`` and ``checked`` (``"published"``
        or ``"recorded"``: the checksum that it was verified against, or ``"nothing"``);
        ``unpacked_bytes``; and ``format``, ``source`` and ``options``, a dict, of its import.

    Raises:
        ValueError: The name is unknown, or the dataset can only be fetched by hand.
        OSError: The server cannot be reached, a file differs, or the disk is full.
        KeyboardInterrupt: Ctrl-C was pressed; the received data is kept.
    """
    if mirror is not None and not mirror.startswith(("http://", "https://")):
        raise ValueError(f"mirror {mirror}: the address must start with http:// or https://")
    directory = os.fspath(f"{name}-raw" if out is None else out)
    with watch(progress) as observe:
        got = record_of(_graphmill.download(name, directory, mirror, verify, observe))
    source = os.path.join(directory, got.entry.source) if got.entry.source else directory
    return Record(
        name=got.entry.name,
        directory=directory,
        files=got.files,
        unpacked_bytes=got.unpacked_bytes,
        format=got.entry.format,
        source=source,
        options=options_of_words(got.entry.options),
    )


def options_of_words(words: list[str]) -> dict[str, Any]:
    """Keywords of :func:`import_dataset` for the words of a command line."""
    options: dict[str, Any] = {}
    name = ""
    for word in words:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            options[name] = True
        else:
            options[name] = word
    return options
