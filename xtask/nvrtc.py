"""Compiles files of CUDA C++ to PTX: python3 nvrtc.py DIRECTORY SOURCE ...

DIRECTORY/NAME.ptx is made from NAME.cu. NVRTC is the one of this interpreter's packages and needs no
device. The same source gives the same bytes: neither paths nor dates go into them."""

import ctypes
import pathlib
import sys
import sysconfig

# The oldest devices that the kernels are for; drivers compile PTX for all newer ones.
ARCHITECTURE = "compute_80"
# Devices whose own code is compiled and dropped: only this finds faults of inline PTX, and too much
# shared memory. All kernels take 15 s of a core with it, and 3 s without.
DEVICES = ["sm_80", "sm_90"]


class Nvrtc:
    def __init__(self):
        packages = pathlib.Path(sysconfig.get_paths()["purelib"])
        self.library = ctypes.CDLL(packages / "nvidia/cuda_nvrtc/lib/libnvrtc.so.12")
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {self.library.nvrtcGetErrorString(status).decode()}")

    def text(self, kind, program):
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{kind}", program, buffer)
        return buffer.value

    def log(self, program):
        return self.text("ProgramLog", program).decode().strip()

    def compile(self, source, architecture):
        """The PTX of a source; headers are looked for beside it."""
        program = ctypes.c_void_p()
        name = source.name.encode()
        self.call("nvrtcCreateProgram", ctypes.byref(program), source.read_bytes(), name, 0, None, None)
        options = [f"--gpu-architecture={architecture}", "--std=c++17", f"--include-path={source.parent}"]
        options = [option.encode() for option in options]
        try:
            self.call("nvrtcCompileProgram", program, len(options), (ctypes.c_char_p * len(options))(*options))
            warnings = self.log(program)
            if warnings:
                print(warnings, file=sys.stderr)
            return self.text("PTX", program).rstrip(b"\0\n") + b"\n"
        except RuntimeError as error:
            raise RuntimeError(f"{source}: {error}\n{self.log(program)}") from None
        finally:
            self.call("nvrtcDestroyProgram", ctypes.byref(program))


def main(directory, *sources):
    nvrtc = Nvrtc()
    for source in map(pathlib.Path, sources):
        try:
            ptx = nvrtc.compile(source, ARCHITECTURE)
            for device in DEVICES:
                nvrtc.compile(source, device)
        except RuntimeError as error:
            sys.exit(str(error))
        (pathlib.Path(directory) / f"{source.stem}.ptx").write_bytes(ptx)


if __name__ == "__main__":
    main(*sys.argv[1:])
