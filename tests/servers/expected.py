"""What a client is to be told behind each web server.

`Told` and `Plant` are what the interface promises; `DIFFERENCES` is the one
list of what a server does otherwise, each with its reason.
"""

import dataclasses
import json

from lib_servers import SetUp, version_of
from lib_service import Answer, answer_body, canonical, new_plant, read_errors

MESSAGES = {row.number: row.message for row in read_errors()}
BASIC = 'Bearer realm="plant-store"'
INVALID = f'{BASIC}, error="invalid_token"'
# RFC 6750, 3.1: no error code where no token was presented.
CHALLENGES = {1001: BASIC, 1002: BASIC, 1007: BASIC}
NO_ANSWER = 5007


@dataclasses.dataclass(frozen=True)
class Told:
    """An Error: its exact status, body and headers."""

    status: int
    number: int
    detail: str = ""  # how the message goes on
    bare: bool = False  # the answer to HEAD
    framed: bool = True  # by a Content-Length; else by the connection's end
    allow: str = "POST"  # of a 405
    retry_after: str | None = "1"  # of a 429 and a 503

    def body(self) -> bytes:
        message = MESSAGES[self.number] + self.detail
        return canonical({"error": self.number, "message": message})

    def fits(self, answer: Answer) -> bool:
        body = self.body()
        challenge = CHALLENGES.get(self.number, INVALID)
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)) if self.framed else None,
            "www-authenticate": challenge if self.status == 401 else None,
            "allow": self.allow if self.status == 405 else None,
            "retry-after": self.retry_after if self.status in (429, 503) else None,
        }
        return (
            answer.status == self.status
            and answer.body == (b"" if self.bare else body)
            and all(
                [v for n, v in answer.headers if n.lower() == name]
                == ([] if value is None else [value])
                for name, value in headers.items()
            )
        )


@dataclasses.dataclass(frozen=True)
class Plant:
    """A plant to send, and the 200 that it is answered with."""

    id: int
    name: str = "Fern"
    tag: str | None = None

    def body(self) -> bytes:
        return new_plant(self.id, self.name, self.tag)

    def fits(self, answer: Answer) -> bool:
        length = str(len(answer_body(self.name, self.tag)))
        return answer.is_plant(self.name, self.tag) and answer.header("Content-Length") == length

    def stored(self) -> dict:
        return json.loads(self.body())


def at(offset: int, reason: str) -> str:
    """How the message of an error in the JSON goes on."""
    return f": byte {offset}: {reason}."


# --- What differs ------------------------------------------------------------

CREATED = "created"  # 200 with the plant that was sent
EMPTY_OK = "empty 200"
OWN_PAGE = "own page"  # the server's, of status 400 to 599
CUT = "cut"  # no answer, or one that stops short of its Content-Length
BROKEN = "broken"  # 200, and a body that is no JSON


@dataclasses.dataclass(frozen=True)
class Difference:
    """Set-ups and cases in which something else is expected.

    Where there are several expectations, chance decides.
    """

    who: tuple[str, ...]  # the names of set-ups, or how they begin
    cases: tuple[str, ...]
    instead: tuple[Told | str, ...]
    why: str

    def concerns(self, set_up: SetUp, case: str) -> bool:
        name = f"{set_up.name} "
        return case in self.cases and any(name.startswith(f"{w} ") for w in self.who)


def differ(who: str, cases: str, *instead: Told | str, why: str) -> Difference:
    """`who` and `cases` are lists with a bar between their members."""
    return Difference(tuple(who.split("|")), tuple(cases.split("|")), instead, why)


STAYS = "a status of its own stays, whatever its text is"
FAILED = "sees only that a program failed"
DOWN = "down|down, chunked|down, GET"
LONE = Told(503, NO_ANSWER, retry_after=None)

DIFFERENCES = [
    differ("nginx", "two credentials", Told(400, 3008),
           why="refuses a second Authorization header itself"),
    differ("lighttpd", "BREW|BREW elsewhere", Told(501, 3011), why="has a status for it"),
    differ("lighttpd|nginx", "coding gzip|coding gzip, 1 over|gzip, chunked", Told(501, 3011),
           why="has a status for it"),
    differ("lighttpd", "no length", Told(411, 3006), why=STAYS),
    differ("nginx", "HTTP/3.1", Told(505, 3011), why=STAYS),
    # A request line has to have 1.0 or 1.1 from 1.4.77 on.
    differ("lighttpd", "HTTP/1.2", Told(400, 3008), why="cannot read it")
    if version_of("lighttpd") >= (1, 4, 77) else
    differ("lighttpd", "HTTP/1.2|HTTP/3.1", Told(505, 3011), why=STAYS),
    differ("lighttpd|apache", "OPTIONS *", EMPTY_OK, why="answers it itself"),
    differ("apache", "TRACE|TRACE below", Told(405, 2002, allow=""),
           why="refuses it itself, and allows what its own list has: nothing"),
    differ("nginx", "TRACE elsewhere|TRACE below", Told(405, 2002),
           why="refuses it before it looks for the path"),
    differ("apache", "HEAD elsewhere", Told(404, 2001, bare=True, framed=False),
           why="tells HEAD no length"),
    differ("apache", "CONNECT|CONNECT elsewhere", Told(400, 3008),
           why="wants a host behind it"),
    differ("apache", "CONNECT a host", Told(404, 2001), why="has no such path"),
    differ("apache", "200 headers", Told(400, 3008), why="takes 100"),
    differ("apache", "long headers", CREATED,
           why="takes 100 of 8190 bytes"),
    differ("apache", "unknown Expect", Told(417, 3008), why="has a status for it"),
    differ("apache", "HTTP/3.1", CREATED, why="takes any version for HTTP/1.1"),
    differ("lighttpd", "bad percent", Told(404, 2001), why="leaves it as it is"),
    differ("apache", "NUL in path|%00 in path|/..%00 in path", Told(404, 2001),
           why="has no such path"),
    differ("apache proxy_fcgi", "gzip, chunked",
           Told(400, 4001, at(0, "expected an opening brace")), why="goes by the last coding"),
    differ("apache cgid", "gzip, chunked", Told(400, 3006), CUT, why="hands nothing of it over"),
    differ("lighttpd|nginx", "%2F", CREATED, why="decode a path before they route"),
    differ("apache|nginx", "above the root", Told(400, 3008), why="refuse such a path"),
    differ("apache", "long path", Told(414, 3010), why="has a status for it"),
    differ("apache", "long header|many headers", Told(400, 3008),
           why="has no status for it"),
    differ("apache", "bad chunk", Told(400, 3008, framed=False),
           why="ends the connection with it"),
    differ("apache", "length and chunked", Told(400, 3006),
           why="goes by the chunks, of which there are none, and closes"),
    differ("apache cgid", "1 over, chunked", Told(413, 3007, framed=False),
           why="ends the connection with it"),
    differ("caddy", "CONNECT elsewhere|CONNECT a host", Told(404, 2001), why="has no such path"),
    differ("caddy", "long header", CREATED, why="takes 1 MiB"),
    differ("caddy|haproxy", "gzip, chunked", OWN_PAGE, why="cannot read it"),
    differ("haproxy", "long header", CREATED, why="takes 63,000 bytes"),
    differ("haproxy", "chunked, empty|chunked, at the limit", Told(400, 3008),
           why="does not hand it over, or would have no length for it"),
    differ("caddy", "chunked, of any length|chunked, at the limit|chunked, empty", Told(400, 3003),
           why="hands an unknown length over as -1"),
    differ("caddy", "1 over, chunked", Told(400, 3003), why="hands an unknown length over as -1"),
    differ("haproxy", "CONNECT|CONNECT elsewhere|CONNECT a host", OWN_PAGE,
           why="wants a host and a port that Host repeats"),
    differ("haproxy", "1 over, chunked", Told(400, 3008), CUT,
           why="holds 63,000 bytes of a body whose length it does not know"),
    # When the service is gone, or goes.
    differ("lighttpd fastcgi", DOWN, LONE, why="cannot add a header to its own answer"),
    differ("lighttpd fastcgi", "down, HEAD", dataclasses.replace(LONE, bare=True),
           why="cannot add a header to its own answer"),
    differ("lighttpd spawn", DOWN, LONE, Told(500, NO_ANSWER),
           why="as before; 500 if it has not noticed yet that the program ended"),
    differ("lighttpd spawn", "down, HEAD", dataclasses.replace(LONE, bare=True),
           Told(500, NO_ANSWER, bare=True),
           why="as before; 500 if it has not noticed yet that the program ended"),
    differ("lighttpd cgi", f"killed|{DOWN}", Told(500, NO_ANSWER), why=FAILED),
    differ("lighttpd cgi", "down, HEAD", Told(500, NO_ANSWER, bare=True), why=FAILED),
    differ("apache proxy_fcgi", "down, HEAD",
           Told(503, NO_ANSWER, bare=True, framed=False), why="tells HEAD no length"),
    differ("apache cgid", f"killed|{DOWN}", Told(500, NO_ANSWER), why=FAILED),
    differ("apache cgid", "down, HEAD",
           Told(500, NO_ANSWER, bare=True, framed=False), why=FAILED),
    differ("haproxy", "killed", Told(502, NO_ANSWER), why=STAYS),
    differ("lighttpd fastcgi|lighttpd spawn", "killed", Told(500, NO_ANSWER), why=STAYS),
    differ("apache cgid", "half a 200", CUT, BROKEN,
           why="counts what came and tells that length, if it has all at once"),
    differ("nginx keep", "killed", CREATED, Told(503, NO_ANSWER),
           why="sends again what broke off on a connection that it had kept"),
]
