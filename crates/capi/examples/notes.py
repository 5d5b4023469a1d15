"""The C library from Python, by ctypes: python3 notes.py libpersimmon.so IMAGE"""

import ctypes
import os
import sys


class CreateOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("size_bytes", ctypes.c_uint64),
        ("zone_bytes", ctypes.c_uint64),
        ("label", ctypes.c_char_p),
        ("reserve_basis_points_plus_one", ctypes.c_uint32),
        ("copies", ctypes.c_uint32),
        ("force", ctypes.c_int),
    ]


library = ctypes.CDLL(sys.argv[1])
library.persimmon_error_message.restype = ctypes.c_char_p
image = os.fsencode(sys.argv[2])


def call(name, *arguments):
    error = getattr(library, name)(*arguments)
    if error:
        reason = library.persimmon_error_message().decode(errors="replace")
        raise OSError(error, f"{name}: {reason}")


create = CreateOptions(ctypes.sizeof(CreateOptions), 64 << 20, 0, b"snakes")
call("persimmon_create", image, ctypes.byref(create))
fs = ctypes.c_void_p()
call("persimmon_open", image, None, ctypes.byref(fs))
file = ctypes.c_void_p()
READ, WRITE, CREATE = 1, 2, 8
call("persimmon_open_file", fs, b"/f", READ | WRITE | CREATE, 0o644, ctypes.byref(file))
call("persimmon_pwrite", file, b"hello", ctypes.c_size_t(5), ctypes.c_uint64(0))
buffer, done = ctypes.create_string_buffer(16), ctypes.c_size_t()
call("persimmon_pread", file, buffer, ctypes.c_size_t(16), ctypes.c_uint64(1), ctypes.byref(done))
assert buffer.raw[: done.value] == b"ello"
library.persimmon_file_close(file)
try:
    call("persimmon_unlink", fs, b"/nothing")
    sys.exit("a file that is not there was removed")
except FileNotFoundError as error:
    print(error.strerror)
call("persimmon_close", fs)
