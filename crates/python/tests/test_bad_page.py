"""A mapped file that shrinks: a line names it, and other users of the signal see what they saw before."""

import signal
import subprocess
import sys
import textwrap

import pytest

import graphmill

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")

PROLOGUE = """
import os, resource
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
{before}
import graphmill

def shrink():
    # the features are the largest file
    files = [os.path.join(root, name) for root, _, names in os.walk("data") for name in names]
    os.truncate(max(files, key=os.path.getsize), 128)
"""


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    """A directory with a dataset, from which each test makes its own."""
    made = tmp_path_factory.mktemp("shrinks")
    graphmill.generate(out=made / "first", nodes=4000, classes=4, dim=256, seed=1, progress=False)
    return made


def ended(where, code, before=""):
    """Runs ``code`` in a new process and a fresh copy of the dataset; returns its status and error output."""
    text = f"import shutil; shutil.rmtree('data', ignore_errors=True); shutil.copytree('first', 'data')\n"
    text += PROLOGUE.format(before=before) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, cwd=where, timeout=100)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "read",
    [
        "data.x.sum()",
        "list(graphmill.NeighborLoader(data, [3], output='numpy', batch_size=64))",
        "graphmill.train(data, epochs=2, hidden=8, progress=False)",
    ],
    ids=["numpy", "loader", "train"],
)
def test_the_file_is_named_and_the_signal_ends_the_interpreter(where, read):
    status, errors = ended(where, f"data = graphmill.Dataset('data'); shrink(); {read}")
    assert status == -signal.SIGBUS
    assert errors.startswith("graphmill: ") and "features.npy: byte " in errors, errors
    assert "became shorter or its disk cannot be read; restore the file" in errors and errors.count("\n") == 1


def test_faulthandler_prints_the_line_of_python_after_it(where):
    code = "data = graphmill.Dataset('data'); shrink(); data.x.sum()"
    status, errors = ended(where, code, before="import faulthandler; faulthandler.enable()")
    assert status == -signal.SIGBUS
    assert errors.index("features.npy: byte ") < errors.index("Fatal Python error: Bus error") < errors.index("File "), errors


@pytest.mark.parametrize(
    ("before", "status", "words"),
    [
        ("", -signal.SIGBUS, None),
        ("import faulthandler; faulthandler.enable()", -signal.SIGBUS, "Fatal Python error: Bus error"),
        # an own handler of ctypes ends the process in its own way
        (
            "import ctypes, signal; own = ctypes.CFUNCTYPE(None, ctypes.c_int)(lambda number: os._exit(7)); "
            "libc = ctypes.CDLL(None); libc.signal.argtypes = [ctypes.c_int, type(own)]; libc.signal(signal.SIGBUS, own)",
            7,
            None,
        ),
    ],
    ids=["default", "faulthandler", "own"],
)
def test_pages_of_other_files_are_not_touched(where, before, status, words):
    code = """
    import mmap
    with open("mine", "wb+") as file:
        file.truncate(1 << 20)
        pages = mmap.mmap(file.fileno(), 0)
        file.truncate(0)
        pages[5000]
    """
    found, errors = ended(where, code, before)
    assert found == status and "graphmill: " not in errors
    assert words is None or words in errors


def test_a_signal_that_is_sent_ends_the_interpreter_as_before(where):
    assert ended(where, "import signal; os.kill(os.getpid(), signal.SIGBUS)") == (-signal.SIGBUS, "")
    before = "import signal; signal.signal(signal.SIGBUS, signal.SIG_IGN)"
    assert ended(where, "os.kill(os.getpid(), signal.SIGBUS)", before) == (0, "")
