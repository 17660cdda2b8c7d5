"""HTTP as bytes, for what a client library would not send or would hide; curl."""

import contextlib
import http.client
import io
import select
import socket
import struct
import time
from collections.abc import Iterable

from lib_service import WAIT_S, Answer, run

CONTINUE = b"HTTP/1.1 100 Continue\r\n"


class _Kept:
    """A reader that several answers come from, one behind the other."""

    def __init__(self, reader: io.BufferedReader) -> None:
        self._reader = reader

    def makefile(self, _mode: str) -> "_Kept":
        return self

    def close(self) -> None:  # an answer's end is not the connection's
        pass

    def __getattr__(self, name: str) -> object:
        return getattr(self._reader, name)


class Wire:
    """A client's connection."""

    def __init__(self, port: int, timeout_s: float = WAIT_S, source: str = "127.0.0.1") -> None:
        place = ("127.0.0.1", port)
        self.socket = socket.create_connection(place, timeout_s, (source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self.socket.makefile("rb")

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Also to who refuses and closes meanwhile: the answer tells more."""
        with contextlib.suppress(ConnectionError):
            self.socket.sendall(data)

    def send_slowly(self, pieces: Iterable[bytes], pause_s: float) -> None:
        for piece in pieces:
            self.send(piece)
            time.sleep(pause_s)

    def answer(self, method: str = "POST") -> Answer:
        """The next one, whole; an exception of http.client if it breaks off."""
        response = http.client.HTTPResponse(_Kept(self._reader), method=method)
        response.begin()
        return Answer(response.status, response.getheaders(), response.read())

    def has_come(self) -> bool:
        """Whether there is something to read, or the other end has closed."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def is_told_to_go_on(self) -> bool:
        """Whether what comes next is 100 Continue, which is taken away."""
        if not self._reader.peek(1).startswith(CONTINUE[:12]):
            return False
        well = self._reader.readline() == CONTINUE
        while (line := self._reader.readline()) != b"\r\n":
            well = well and bool(line)
            if not line:
                break
        return well

    def read(self, length: int) -> bytes:
        data = self._reader.read(length)
        if len(data) < length:
            raise ConnectionError(f"closed after {len(data)} of {length} bytes")
        return data

    def rest(self) -> bytes | None:
        """What comes until the other end closes; None if it does not."""
        try:
            return self._reader.read()
        except TimeoutError:
            return None
        except ConnectionError:
            return b""

    def end_sending(self) -> None:
        """Nothing more comes from here, but the answer is waited for."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self, *, reset: bool = False) -> None:
        if reset:
            linger = struct.pack("ii", 1, 0)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._reader.close()
        self.socket.close()


def chunked(pieces: Iterable[bytes]) -> list[bytes]:
    """A body in chunks, with its end."""
    return [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces] + [b"0\r\n\r\n"]


def in_pieces(data: bytes, count: int) -> list[bytes]:
    size = -(-len(data) // count)
    return [data[at:at + size] for at in range(0, len(data), size)]


# --- HTTP/2 ------------------------------------------------------------------

DATA, HEADERS, RESET, SETTINGS = 0, 1, 3, 4
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int, stream: int, content: bytes) -> bytes:
    """RFC 9113, 4.1."""
    length = struct.pack("!I", len(content))[1:]
    return length + struct.pack("!BBI", kind, flags, stream) + content


def header_field(name: str, value: str) -> bytes:
    """A literal without indexing, RFC 7541, 6.2.2; shorter than 254 bytes."""
    out = b"\0"
    for text in (name.encode(), value.encode()):
        head = [len(text)] if len(text) < 127 else [127, len(text) - 127]
        out += bytes(head) + text
    return out


def http2_content(port: int, headers: dict[str, str], body: bytes, end: int = 0) -> bytes:
    """What answers a request whose body is never ended, unless `end` is END_STREAM.

    curl 7.88 does not show it, since the stream is reset behind the answer.
    """
    sent = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"")
    fields = b"".join(header_field(*each) for each in headers.items())
    sent += frame(HEADERS, END_HEADERS, 1, fields) + frame(DATA, end, 1, body)
    content = b""
    with Wire(port) as wire:
        wire.send(sent)
        while True:
            head = wire.read(9)
            kind, flags, stream = struct.unpack("!BBI", head[3:])
            text = wire.read(int.from_bytes(head[:3], "big"))
            if (kind, stream) == (DATA, 1):
                content += text
            if stream == 1 and (kind == RESET or (kind == DATA and flags & END_STREAM)):
                return content


class CurlError(Exception):
    """Its number is curl's exit status."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"curl: {number}: {text}")
        self.number = number


def curl(*options: str, body: bytes | None = None) -> bytes:
    """What curl prints; `body` is its stdin."""
    limits = ["--noproxy", "*", "--max-time", str(WAIT_S)]
    done = run("curl", "-q", "-sS", *limits, *options, input=body or b"", timeout=2 * WAIT_S)
    if done.returncode:
        raise CurlError(done.returncode, done.stderr.decode(errors="replace"))
    return done.stdout


def curl_answer(printed: bytes, version: str = "HTTP/2") -> Answer:
    """What curl has printed with -i; ValueError if it is of another version."""
    while True:
        head, _, printed = printed.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        status = int(lines[0].split()[1])
        if status >= 200:  # 101: Switching Protocols
            break
    if not lines[0].startswith(version):
        raise ValueError(f"not {version}: {lines[0]}")
    headers = [tuple(line.split(": ", 1)) for line in lines[1:]]
    return Answer(status, headers, printed)
