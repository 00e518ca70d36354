"""Compiles a file of CUDA C++ to PTX: python3 nvrtc.py LIBRARY SOURCE OUTPUT [OPTION ...]

NVRTC, the library, needs no device. The file's own directory is where its headers are looked for."""

import ctypes
import pathlib
import sys


def main(library, source, output, *options):
    nvrtc = ctypes.CDLL(library)
    nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
    source = pathlib.Path(source)

    def call(name, *arguments):
        status = getattr(nvrtc, name)(*arguments)
        return nvrtc.nvrtcGetErrorString(status).decode() if status else None

    def text(kind, program):
        size = ctypes.c_size_t()
        error = call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        error = error or call(f"nvrtcGet{kind}", program, buffer)
        if error:
            sys.exit(f"{source}: nvrtcGet{kind}: {error}")
        return buffer.value

    program = ctypes.c_void_p()
    # the name alone: what is compiled must not tell where
    name = source.name.encode()
    error = call("nvrtcCreateProgram", ctypes.byref(program), source.read_bytes(), name, 0, None, None)
    if error:
        sys.exit(f"{source}: nvrtcCreateProgram: {error}")
    options = [f"--include-path={source.parent}", *options]
    words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    error = call("nvrtcCompileProgram", program, len(options), words)
    log = text("ProgramLog", program).decode().strip()
    if error:
        sys.exit(f"{source}: {error}\n{log}")
    if log:
        print(log, file=sys.stderr)
    pathlib.Path(output).write_bytes(text("PTX", program).rstrip(b"\n") + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
