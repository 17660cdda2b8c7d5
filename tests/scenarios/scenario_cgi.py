"""Goal: plain CGI answers over one socket, as Apache's mod_cgid has it.

The program's stdin and stdout are the same socket there.  Were something left
unread in it at the end, the server would find it reset, and the answer lost.

usage: scenario_cgi.py BUILD_DIR
"""

import os
import socket
import subprocess
import sys

from lib_service import (
    PIPE_FULL, WAIT_S, Answer, Store, Tally, check_length, held_lock, main, new_plant, parse_cgi,
    state_of, temporary_store, unread, wait_until,
)

UNKNOWN = "Bearer pst_" + "A" * 43
LIMIT = 65536


def ask(store: Store, request: dict[str, str], body: bytes, **settings: str) -> Answer:
    """One request: all of the body is there before the program starts."""
    server, program = socket.socketpair()
    with server, program:
        server.settimeout(WAIT_S)
        # What comes in waits in this buffer; the default is 208 KiB.
        server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
        server.sendall(body)
        process = subprocess.Popen(
            [store.responder], env=store.environment(**settings) | request, stdin=program,
            stdout=program, stderr=subprocess.DEVNULL)
        program.close()
        try:
            if "CONTENT_LENGTH" not in request:
                server.shutdown(socket.SHUT_WR)
            # The reset comes when it ends, and would overtake the answer.
            process.wait(WAIT_S)
            out = b""
            while piece := server.recv(65536):
                out += piece
        finally:
            process.kill()
            process.wait()
    return check_length(parse_cgi(out))


def ask_unblocked(store: Store, body: bytes) -> Answer:
    """One request over pipes that do not block, of which ours are slow."""
    in_read, in_write = os.pipe()
    out_read, out_write = os.pipe()
    os.set_blocking(in_read, False)
    os.set_blocking(out_write, False)
    process = subprocess.Popen(
        [store.responder],
        env=store.environment(PLANT_STORE_BODY_BYTES_MAX="1048576")
        | store.request(body),
        stdin=in_read,
        stdout=out_write,
        stderr=subprocess.DEVNULL,
    )
    os.close(in_read)
    os.close(out_write)
    with process, open(in_write, "wb") as ours, open(out_read, "rb") as answer:
        # It waits for the body, and then for its answer to be read.
        waits = wait_until(lambda: state_of(process.pid) == "S")
        # lighttpd ends a program so whose output is closed, maybe too early.
        process.terminate()
        ours.write(body)
        ours.flush()
        waits = waits and wait_until(
            lambda: unread(answer) > PIPE_FULL and state_of(process.pid) == "S")
        out = answer.read()
    if not waits:
        raise RuntimeError("it does not wait")
    return check_length(parse_cgi(out))


def scenario(tally: Tally, build_dir: str) -> None:
    with tally.part("no blocking"), temporary_store(build_dir) as store:
        name = "f" * 300_000
        answer = ask_unblocked(store, new_plant(1, name))
        sentence = "pipes that do not block are waited for, SIGTERM or not"
        tally.check(answer.is_plant(name), sentence, len(answer.body))
    with temporary_store(build_dir) as store:
        body = new_plant(1, "Fern")
        good = store.request(body)
        chunked = good | {"HTTP_TRANSFER_ENCODING": "chunked"}
        del chunked["CONTENT_LENGTH"]
        over = new_plant(2, "f" * (4 * LIMIT))
        over_length = {"CONTENT_LENGTH": str(len(over))}
        bad_token = {"HTTP_AUTHORIZATION": UNKNOWN}
        bad_setting = {"PLANT_STORE_STATUS": "maybe"}
        bad_tokens = {"PLANT_STORE_TOKENS": "/nowhere/tokens"}
        cases = (
            ("an unknown token", good | bad_token, body, {}, (401, 1005)),
            ("an unknown token, chunked", chunked | bad_token, body, {}, (401, 1005)),
            ("another path", good | {"SCRIPT_NAME": "/s"}, body, {}, (404, 2001)),
            ("a large body", good | over_length, over, {}, (413, 3007)),
            ("a large body, chunked", chunked, over, {}, (413, 3007)),
            ("a wrong setting", good, body, bad_setting, (503, 5006)),
            ("no token file", good, body, bad_tokens, (503, 5006)),
        )
        for name, request, sent, settings, told in cases:
            with tally.part(f"{name} is answered"):
                answer = ask(store, request, sent, **settings)
                tally.check(answer.is_error(*told), f"{name} is told", answer)
        with tally.part("a store in use is answered"), held_lock(store):
            health = {"REQUEST_METHOD": "GET", "SCRIPT_NAME": "/health"}
            answer = ask(store, health, b"", PLANT_STORE_HEALTH_PATH="/health")
            tally.check(answer.is_error(503, 5004), "a store in use is busy", answer)
        with tally.part("a plant is answered"):
            answer = ask(store, good, body)
            tally.check(answer.is_plant("Fern"), "a plant is created", answer)
            answer = ask(store, chunked, body)
            tally.check(answer.is_plant("Fern"), "a repeat, chunked", answer)


if __name__ == "__main__":
    sys.exit(main(scenario))
