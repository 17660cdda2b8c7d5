#!/usr/bin/python3
"""A responder that dies in the middle of a good answer, as FastCGI or as CGI.

Put in the place of the real one.  It leaves the file `half-answered` in the
store, and ends when another program has taken its place.
"""

import os
import pathlib
import signal
import socket
import struct
import sys

HALF = b"Status: 200 OK\r\nContent-Type: application/json\r\n"
HALF += b'Content-Length: 15\r\n\r\n{"name":'
STDIN, STDOUT = 5, 6


def die() -> None:
    pathlib.Path(os.environ["PLANT_STORE_DIR"], "half-answered").touch()
    os.kill(os.getpid(), signal.SIGKILL)


def over_cgi() -> None:
    sys.stdin.buffer.read(int(os.environ["CONTENT_LENGTH"]))
    os.write(1, HALF)
    die()


def is_replaced() -> bool:
    """Also if it was before this began to run."""
    return pathlib.Path(__file__).read_bytes()[:2] != b"#!"


def over_fastcgi(listener: socket.socket) -> None:
    listener.settimeout(0.05)
    while True:
        try:
            peer = listener.accept()[0]
            break
        except (TimeoutError, BlockingIOError):
            if is_replaced():
                return
    peer.setblocking(True)
    reader = peer.makefile("rb")
    kind, length = 0, 1
    while (kind, length) != (STDIN, 0):
        _, kind, request, length, padding = struct.unpack("!BBHHBx", reader.read(8))
        reader.read(length + padding)
    peer.sendall(struct.pack("!BBHHBx", 1, STDOUT, request, len(HALF), 0) + HALF)
    die()


def main() -> None:
    try:
        listener = socket.socket(fileno=os.dup(0))
        is_fastcgi = listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError:  # no socket
        is_fastcgi = 0
    if is_fastcgi:
        over_fastcgi(listener)
    else:
        over_cgi()


main()
