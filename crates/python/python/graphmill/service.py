"""The service of ``graphmill serve``, started and stopped from Python."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from .given import RunLike, run_directory

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Start of the line by which the program says that it is ready.
READY = "listening at "
#: Lines of the program's output that a failure shows.
LINES = 20


class ServeOptions(TypedDict, total=False):
    """Options of :func:`serve`, as of ``graphmill serve``."""

    #: Uses the last checkpoint instead of the best model
    last: bool
    #: Reads all edges, for a run on links
    all_edges: bool
    #: Listens at an address of the network without a token
    anonymous: bool
    #: File with the token that requests must have
    token_file: str | os.PathLike[str]
    #: Rows of known nodes to compute once
    cache_embeddings: Literal["none", "bottom"]
    #: Milliseconds that a batch waits for more requests
    batch_window: int
    #: Nodes after which a batch is full
    max_batch: int
    #: Largest number of nodes or pairs of a request
    max_nodes: int
    #: Largest number of candidates of a request
    max_candidates: int
    #: Largest number of new edges of a request
    max_edges: int
    #: Largest body of a request in bytes, also as text such as ``"4M"``
    max_body: int | str
    #: Largest number of requests at the same time
    max_requests: int
    #: Largest number of open connections
    max_connections: int
    #: Seconds in which a header, a body or a reading must end
    timeout: int
    #: Number of threads; 0 for all cores
    threads: int


def serve(
    run: RunLike,
    *,
    listen: str = "127.0.0.1:0",
    dataset: str | os.PathLike[str] | None = None,
    token: str | None = None,
    program: str | os.PathLike[str] | None = None,
    **options: Unpack[ServeOptions],
) -> Service:
    """Starts ``graphmill serve`` in a process of its own, and waits until it listens.

    The service ends with the ``with`` block, with :meth:`Service.stop`, or when Python exits.

    Args:
        run: Run, or its directory.
        listen: Host and port to listen at; port 0 takes a free one.
        dataset: Directory of another dataset to answer for.
        token: Token that requests must have. It is passed by the environment, not as an argument.
        program: The ``graphmill`` program. Default: that beside this Python, or on the path.
        **options: Other options of ``graphmill serve``: ``last``, ``anonymous``,
            ``cache_embeddings``, ``max_batch``, ``max_requests``, ``timeout``, ...;
            ``graphmill.ServeOptions`` has their types.

    Returns:
        The running service.

    Raises:
        TypeError: An option is unknown.
        FileNotFoundError: The run does not exist, or the program is not installed.
        RuntimeError: The service does not start; the message has its output.

    ``with graphmill.serve("runs/bank") as service:`` runs a block in which ``service.url`` answers.
    """
    for name in options:
        if name not in ServeOptions.__annotations__:
            raise TypeError(f"serve() has no option '{name}'; it has {', '.join(ServeOptions.__annotations__)}")
    words = [program_of(program), "serve", run_directory(run), "--listen", listen]
    if dataset is not None:
        words += ["--dataset", os.fspath(dataset)]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is None or value is False:
            continue
        words += [flag] if value is True else [flag, os.fspath(value) if isinstance(value, os.PathLike) else str(value)]
    environment = dict(os.environ)
    environment.pop("GRAPHMILL_TOKEN", None)
    # lines are read here, and not JSON
    environment.pop("GRAPHMILL_PROGRESS", None)
    if token is not None:
        environment["GRAPHMILL_TOKEN"] = token
    return Service(words, environment)


def program_of(given: str | os.PathLike[str] | None) -> str:
    """Path of the ``graphmill`` program."""
    beside = os.path.dirname(sys.executable)
    found = os.fspath(given) if given is not None else shutil.which("graphmill", path=beside) or shutil.which("graphmill")
    if found is None:
        raise FileNotFoundError("serve: the program graphmill is not on the path; install the wheel, which has it, or pass program=")
    return found


class Service:
    """A running service. As a context manager it stops at the end of the block."""

    def __init__(self, words: list[str], environment: dict[str, str]):
        self._process = subprocess.Popen(
            words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        # runs when Python exits, too
        self._end = weakref.finalize(self, stop_process, self._process, 60.0)
        self._lines: deque[str] = deque(maxlen=LINES)
        self._ready = threading.Event()
        #: Address of the service, such as ``http://127.0.0.1:8080``.
        self.url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self._ready.wait()
        except BaseException:
            self.stop()
            raise
        if not self.url:
            status = self._process.wait()
            raise RuntimeError(f"graphmill serve ended with status {status}: {self.output}")

    def _read(self) -> None:
        """Reads the program's output until it ends, so that the pipe never fills."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line)
            if not self.url and READY in line:
                self.url = line.split(READY, 1)[1].strip()
                self._ready.set()
        self._ready.set()

    @property
    def output(self) -> str:
        """Last lines of the program's output."""
        return "".join(self._lines).strip()

    @property
    def is_running(self) -> bool:
        """True until the service ends."""
        return self._process.poll() is None

    def reload(self) -> None:
        """Opens the run again, for a newer model; requests in flight get the old one's answers."""
        self._process.send_signal(signal.SIGHUP)

    def stop(self, timeout: float = 60.0) -> None:
        """Stops the service after the requests in flight.

        Args:
            timeout: Seconds after which the process is killed.
        """
        stop_process(self._process, timeout)
        self._end.detach()
        self._reader.join()
        if self._process.stderr is not None:
            self._process.stderr.close()

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: Any) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"Service('{self.url}', {'running' if self.is_running else 'stopped'})"


def stop_process(process: subprocess.Popen[str], timeout: float) -> None:
    """Asks a process to end, waits for it, and kills it after ``timeout`` seconds."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
