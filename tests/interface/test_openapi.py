#!/usr/bin/env python3
"""Hold deploy/www/openapi.json against linters, generators, the errors and the service.

usage: test_openapi.py [--npm] BUILD_DIR

--npm: also by linters and generators, which come from npm in the versions of
tests/interface/openapi/package-lock.json.  The answer 500 is held against the table only: no
request brings it about.
"""

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from lib_service import (
    TOP, Answer, ErrorRow, Store, Tally, canonical, check_length, install_npm, main, parse_cgi,
    read_errors, read_met, run, temporary_store,
)

DOCUMENT = TOP / "deploy" / "www" / "openapi.json"
README = TOP / "README.md"
INT_BOUNDS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
# Their messages go on with the place and the reason.
JSON_ERRORS = range(4001, 4005)
CREATED = "200"
OTHERS = "default"
# No answer to POST, so in the description of the path, too.
METHOD_STATUS, METHOD_ERROR = 405, 2002
DIFFERENCES = "## What each web server does differently"  # of deploy/servers.md
# The linters, with every recommended rule.
REDOCLY = """
import redocly from "@redocly/openapi-core";
const config = await redocly.createConfig({ extends: ["recommended-strict"] });
const found = await redocly.lint({ ref: process.argv[1], config });
if (found.length > 0) throw JSON.stringify(found.map(({ ruleId, message }) => [ruleId, message]));
"""
SPECTRAL = """
import { readFileSync } from "node:fs";
import spectral from "@stoplight/spectral-core";
import { oas } from "@stoplight/spectral-rulesets";
const linter = new spectral.Spectral();
linter.setRuleset({ extends: [[oas, "recommended"]] });
const found = await linter.run(readFileSync(process.argv[1], "utf8"));
if (found.length > 0) throw JSON.stringify(found);
"""
SWAGGER_PARSER = """
import parser from "@apidevtools/swagger-parser";
await parser.validate(process.argv[1]);
"""
OPENAPI_TS = """
import { createClient } from "@hey-api/openapi-ts";
const [input, path] = process.argv.slice(1);
const plugins = [{ name: "@hey-api/typescript", enums: "javascript" }];
await createClient({ input, output: { path }, plugins, logs: { level: "silent" } });
"""
NAMES = """
import { readFileSync } from "node:fs";
import ts from "typescript";
const made = ts.transpile(readFileSync(process.argv[1], "utf8"), {
    module: ts.ModuleKind.ESNext,
});
const { ErrorNumber } = await import(`data:text/javascript,${encodeURIComponent(made)}`);
console.log(JSON.stringify(ErrorNumber));
"""


# --- The table of errors -----------------------------------------------------


def check_statuses(tally: Tally, document: dict, rows: list[ErrorRow]) -> None:
    path = document["paths"]["/plants"]
    statuses = {str(row.status) for row in rows}
    responses = path["post"]["responses"]
    documented = set(responses) - {CREATED, OTHERS}
    tally.check(documented == statuses, "the operation has every status of the table, and no other",
                documented ^ statuses)
    for word in (str(METHOD_STATUS), str(METHOD_ERROR), "`Allow: POST`"):
        tally.check(word in path["description"], f"the path's description has {word}", path)
    others = resolve(document, responses[OTHERS])
    tally.check(
        others["content"]["application/json"]["schema"]
        == {"$ref": "#/components/schemas/Error"},
        "every other status has the body Error",
        others,
    )
    section = (TOP / "deploy" / "servers.md").read_text().partition(DIFFERENCES)[2]
    met = set(re.findall(r"\b(?:4\d\d|50\d)\b", section.partition("\n* ")[0]))
    named = set(re.findall(r"\b[45]\d\d\b", others["description"]))
    met |= {status for _, status, _ in read_met()}
    tally.check(bool(met) and met <= documented | named,
                "the statuses of the web servers are named", met - documented - named)


def check_drift(tally: Tally) -> None:
    """scripts/errors, in a copy of what it reads and writes."""
    with tempfile.TemporaryDirectory(prefix="plant-store-") as temporary:
        top = pathlib.Path(temporary)
        (top / "scripts").mkdir()
        shutil.copy(TOP / "scripts" / "errors", top / "scripts")
        # Of sources that may be there for reading only.
        run("cp", "-r", "--no-preserve=mode", TOP / "deploy", top, check=True)
        copy = top / DOCUMENT.relative_to(TOP)

        def errors(*arguments: str) -> subprocess.CompletedProcess:
            return run(top / "scripts" / "errors", *arguments, text=True)

        done = errors("--check")
        tally.check(done.returncode == 0, "scripts/errors --check finds no drift", done)
        for keyword in ("enum", "x-enum-varnames", "x-enum-descriptions", "description"):
            document = json.loads(DOCUMENT.read_text())
            number = document["components"]["schemas"]["ErrorNumber"]
            if keyword == "description":
                number[keyword] = number[keyword].replace("| 1001 | 401 |", "| 1001 | 403 |")
            else:
                number[keyword].reverse()
            copy.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
            done = errors("--check")
            tally.check(done.returncode == 1 and str(copy) in done.stderr,
                        f"scripts/errors --check finds a drift of {keyword}", done)
            done = errors()
            tally.check(done.returncode == 0 and copy.read_text() == DOCUMENT.read_text(),
                        f"scripts/errors mends {keyword}", done)


# --- The linters and generators ----------------------------------------------


def npm(folder: str, *command: str | os.PathLike) -> subprocess.CompletedProcess:
    """Run a program of npm's packages, or node with them."""
    programs = os.path.join(folder, "node_modules", ".bin")
    environment = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "NO_COLOR": "1"}
    return run(*command, cwd=folder, env=environment, stderr=subprocess.STDOUT, text=True)


def node(script: str) -> list[str]:
    return ["node", "--input-type=module", "-e", script]


def check_linters(tally: Tally, folder: str) -> None:
    """Each finds nothing in the document, and what is missing from a broken one."""
    linters = [("redocly", REDOCLY, "license"), ("spectral", SPECTRAL, "contact"),
               ("swagger-parser", SWAGGER_PARSER, "version")]
    with tempfile.TemporaryDirectory(prefix="plant-store-") as temporary:
        broken_path = pathlib.Path(temporary, "openapi.json")
        for name, script, missing in linters:
            done = npm(folder, *node(script), DOCUMENT)
            tally.check(done.returncode == 0, f"{name} finds nothing", done.stdout)
            broken = json.loads(DOCUMENT.read_text())
            del broken["info"][missing]
            broken_path.write_text(json.dumps(broken))
            done = npm(folder, *node(script), broken_path)
            tally.check(done.returncode == 1 and missing in done.stdout,
                        f"{name} finds that {missing} is missing", done.stdout)


def check_generators(tally: Tally, folder: str, rows: list[ErrorRow]) -> None:
    """Each makes constants of the names of the table."""
    wanted = {row.name: row.number for row in rows}
    with tempfile.TemporaryDirectory(prefix="plant-store-") as temporary:
        types = os.path.join(temporary, "plants.ts")
        generators = [
            (["openapi-typescript", DOCUMENT, "--enum", "-o", types], types),
            ([*node(OPENAPI_TS), DOCUMENT, temporary], f"{temporary}/types.gen.ts"),
        ]
        for command, made in generators:
            done = npm(folder, *command)
            name = os.path.basename(made)
            if not tally.check(done.returncode == 0, f"{name} is made", done.stdout):
                continue
            done = npm(folder, *node(NAMES), made)
            tally.check(done.returncode == 0, f"{name} is a module", done.stdout)
            text = pathlib.Path(made).read_text()
            tally.check("://{" not in text and "}://" not in text, f"{name} has a whole URL", text)
            # TypeScript's enum has the numbers as names, too.
            found = {n: v for n, v in json.loads(done.stdout).items() if n in wanted}
            tally.check(found == wanted, f"{name} has a name for each error", found)


# --- The document itself -----------------------------------------------------


def resolve(document: dict, node: dict) -> dict:
    while "$ref" in node:
        reference = node["$ref"]
        node = document
        for name in reference.removeprefix("#/").split("/"):
            node = node[name]
    return node


def responses_of(document: dict) -> dict[str, dict]:
    responses = document["paths"]["/plants"]["post"]["responses"]
    return {status: resolve(document, node) for status, node in responses.items()}


def examples_of(node: dict) -> dict[str, object]:
    """The values of the examples of a request or response body."""
    examples = node["content"]["application/json"]["examples"]
    return {name: example["value"] for name, example in examples.items()}


def schema_faults(document: dict, schema: dict, value: object) -> Iterator[str]:
    """Why the value is not of the schema.

    Knows the keywords that the document uses; KeyError on any other.
    """
    schema = resolve(document, schema)
    types = {"object": dict, "string": str, "integer": int}
    for keyword, wanted in schema.items():
        match keyword:
            case "description" | "x-enum-varnames" | "x-enum-descriptions":
                pass
            case "enum":
                if value not in wanted:
                    yield f"{value} is not in the enum"
            case "anyOf":
                if all(any(schema_faults(document, part, value)) for part in wanted):
                    yield f"{value!r} is none of {wanted}"
            case "type":
                if type(value) is not types[wanted]:
                    yield f"{value!r} is not of type {wanted}"
            case "format":
                low, high = INT_BOUNDS[wanted]
                if not low <= value <= high:
                    yield f"{value} is outside {wanted}"
            case "minimum" | "maximum":
                if (value < wanted) if keyword == "minimum" else (value > wanted):
                    yield f"{value} is beyond the {keyword} {wanted}"
            case "required":
                if set(wanted) - set(value):
                    yield f"{wanted} are not all in {value}"
            case "properties":
                for name in wanted.keys() & value.keys():
                    yield from schema_faults(document, wanted[name], value[name])
            case "allOf":
                for part in wanted:
                    yield from schema_faults(document, part, value)
            case _:
                raise KeyError(f"the keyword {keyword} is not known here")


def check_examples(tally: Tally, document: dict, rows: list[ErrorRow]) -> None:
    post = document["paths"]["/plants"]["post"]
    bodies = {"request": post["requestBody"], **responses_of(document)}
    for where, body in bodies.items():
        schema = body["content"]["application/json"]["schema"]
        for name, value in examples_of(body).items():
            faults = list(schema_faults(document, schema, value))
            tally.check(not faults, f"the example {name} of {where} is of its schema", faults)
    for status, response in responses_of(document).items():
        if status == CREATED:
            continue
        for name, value in examples_of(response).items():
            tally.check(any(is_row(row, status, value) for row in rows),
                        f"the example {name} of {status} is in the table", value)
    new_plant = document["components"]["schemas"]["NewPlant"]
    for wrong in ({"id": 1}, {"name": "F"}, {"id": 2**63, "name": "F"}, {"id": "1"}):
        tally.check(any(schema_faults(document, new_plant, wrong)), f"{wrong} is no NewPlant")
    schemas = document["components"]["schemas"]
    later = {"error": max(row.number for row in rows) + 1, "message": "Later."}
    tally.check(
        any(schema_faults(document, schemas["ErrorNumber"], later["error"]))
        and not any(schema_faults(document, schemas["Error"], later))
        and any(schema_faults(document, schemas["Error"], later | {"error": 2**31})),
        "a number of a later version is an Error, but not yet an ErrorNumber", schemas["Error"])


def is_row(row: ErrorRow, status: str, value: dict) -> bool:
    if row.number != value["error"] or status not in (OTHERS, str(row.status)):
        return False
    if row.number in JSON_ERRORS:
        return value["message"].startswith(row.message + ": byte ")
    return value["message"] == row.message


def check_frame(tally: Tally, document: dict) -> None:
    """What the specification fixes."""
    info = document["info"]
    tally.check(document["openapi"] == "3.1.0", "it is OpenAPI 3.1.0")
    tally.check(info["version"] == "1.0.0", "the interface's version is 1.0.0")
    tally.check(info["license"]["identifier"] == "MIT", "the license is MIT")
    tally.check(set(document["paths"]) == {"/plants"}
                and set(document["paths"]["/plants"]) == {"description", "post"},
                "POST /plants is the only operation", document["paths"].keys())
    post = document["paths"]["/plants"]["post"]
    tally.check(post["requestBody"]["required"] is True, "a body is required")
    schemes = document["components"]["securitySchemes"]
    tally.check(
        "security" not in post and [list(item) for item in document["security"]] == [list(schemes)]
        and [(s["type"], s["scheme"]) for s in schemes.values()] == [("http", "bearer")],
        "everything is protected by a bearer token", schemes)
    schemas = document["components"]["schemas"]
    own = schemas["NewPlant"]["allOf"][1]
    tally.check((schemas["Plant"]["required"], own["required"]) == (["name"], ["id"])
                and set(schemas["Plant"]["properties"]) == {"name", "tag"},
                "name and id are required, and tag is not", schemas)
    bounds = own["properties"]["id"]["minimum"], own["properties"]["id"]["maximum"]
    tally.check(bounds == INT_BOUNDS["int64"], "id has the bounds of int64", bounds)
    tally.check(sorted(schemas["Error"]["required"]) == ["error", "message"],
                "error and message are always present", schemas["Error"])


# --- The service -------------------------------------------------------------


@dataclasses.dataclass
class Asker:
    """Asks the real service, as CGI."""

    store: Store
    settings: dict[str, str] = dataclasses.field(default_factory=dict)

    def __call__(self, body: bytes, **variables: str) -> Answer:
        return check_length(parse_cgi(self.store.cgi(body, self.settings, **variables).stdout))

    def set(self, **settings: str) -> "Asker":
        return Asker(self.store, self.settings | settings)


def failures(ask: Asker) -> Iterator[tuple[str, Answer]]:
    """A request for each status that is documented, and its answer."""
    fern = canonical({"id": 1, "name": "Fern", "tag": "indoor"})
    yield "400", ask(canonical({"name": "Fern"}))
    yield "401", ask(fern, HTTP_AUTHORIZATION="")
    yield "404", ask(fern, SCRIPT_NAME="/plant")
    yield "405", ask(b"", REQUEST_METHOD="GET")
    yield "409", ask(canonical({"id": 1, "name": "Moss"}))
    yield "413", ask(b" " * 65 + fern, PLANT_STORE_BODY_BYTES_MAX="64")
    yield "503", ask.set(PLANT_STORE_DIR="/nonexistent")(fern)


def headers_of(answer: Answer) -> dict[str, str]:
    """Those that are not on every answer."""
    common = {"status", "content-type", "content-length"}
    return {n: value for n, value in answer.headers if n.lower() not in common}


def documented_headers(document: dict, response: dict) -> dict[str, str]:
    return {
        name: str(resolve(document, header)["example"])
        for name, header in response.get("headers", {}).items()
    }


def check_service(tally: Tally, document: dict, rows: list[ErrorRow], store: Store) -> None:
    request_id = document["components"]["headers"]["X-Request-Id"]["example"]
    origin = document["components"]["headers"]["Access-Control-Allow-Origin"]["example"]
    ask = Asker(store, {"HTTP_X_REQUEST_ID": request_id, "HTTP_ORIGIN": origin,
                        "PLANT_STORE_CORS_ORIGINS": origin})
    responses = responses_of(document)
    post = document["paths"]["/plants"]["post"]
    created = examples_of(responses[CREATED])
    for name, value in examples_of(post["requestBody"]).items():
        answer = ask(canonical(value))
        tally.check(answer.status == 200 and answer.body == canonical(created.pop(name))
                    and headers_of(answer) == documented_headers(document, responses[CREATED]),
                    f"the example {name} is answered as documented", answer)
    tally.check(not created, "each example of 200 has a request", created)

    of_all = documented_headers(document, responses[CREATED])
    method_row = next(row for row in rows if row.number == METHOD_ERROR)
    method_body = {"error": METHOD_ERROR, "message": method_row.message}
    for contract in (False, True):
        mode = "contract" if contract else "http"
        for status, answer in failures(ask.set(PLANT_STORE_STATUS=mode)):
            bodies, headers = [method_body], of_all | {"Allow": "POST"}
            if status != str(METHOD_STATUS):
                bodies = list(examples_of(responses[status]).values())
                headers = documented_headers(document, responses[status])
            # The document's 400 lists the headers of the other statuses too.
            allowed = documented_headers(document, responses["400"])
            wanted = of_all if status == "400" else headers
            tally.check(answer.status == (400 if contract else int(status))
                        and answer.body in map(canonical, bodies) and headers_of(answer) == wanted
                        and (not contract or wanted.items() <= allowed.items()),
                        f"{status} is answered as documented, statuses: {mode}", answer)


def check_surrogates(tally: Tally, document: dict, store: Store) -> None:
    ask = Asker(store)
    body = document["paths"]["/plants"]["post"]["requestBody"]
    halves = re.findall(r"`(\\u\w{4})`", body["description"])
    tally.check(len(halves) == 2, "both halves of a character are shown", halves)
    for escape in halves:
        answer = ask(f'{{"id":0,"name":"{escape}"}}'.encode())
        tally.check(answer.is_error(400, 4001), f"{escape} alone is refused", answer)
    answer = ask(f'{{"id":0,"name":"{"".join(halves)}"}}'.encode())
    tally.check(answer.is_plant("\U0001f33f"), "both of them are a character", answer)


def check_example(tally: Tally, document: dict) -> None:
    """README's example, which tests/servers/clients.py runs, is the document's."""
    own = document["components"]["schemas"]["NewPlant"]["allOf"][1]
    examples = [re.search(r"^ *(const plantBody = .*)$", text, re.MULTILINE)
                for text in (own["properties"]["id"]["description"], README.read_text())]
    tally.check(all(examples) and examples[0][1] == examples[1][1],
                "README and the document write large ids in the same way", examples)


def check_jq(tally: Tally) -> None:
    files = [README, *(TOP / "deploy").rglob("*"), *(TOP / "src").rglob("*.c")]
    texts = {path: path.read_text() for path in files if path.is_file()}
    shown = {path for path, text in texts.items() if re.search(r"\bjq\b", text)}
    silent = [path for path in shown if not re.search(r"jq 1\.6[^.]*\b2\^53", texts[path])]
    tally.check(bool(shown) and not silent, "jq's rounding is said where jq is", silent)


def scenario(tally: Tally, build_dir: str, npm_too: bool) -> None:
    document = json.loads(DOCUMENT.read_text())
    rows = read_errors()
    check_frame(tally, document)
    check_statuses(tally, document, rows)
    check_examples(tally, document, rows)
    check_drift(tally)
    check_example(tally, document)
    check_jq(tally)
    if not npm_too:
        tally.skip("linters and generators", "they need --npm; scripts/test --full has it")
    elif tally.check((done := install_npm()).returncode == 0, "npm's packages are installed",
                     done.stderr):
        check_linters(tally, done.stdout.strip())
        check_generators(tally, done.stdout.strip(), rows)
    with temporary_store(build_dir) as store:
        check_service(tally, document, rows, store)
        check_surrogates(tally, document, store)


if __name__ == "__main__":
    npm_too = sys.argv[1:2] == ["--npm"]
    if npm_too:
        del sys.argv[1]
    sys.exit(main(lambda tally, build_dir: scenario(tally, build_dir, npm_too)))
