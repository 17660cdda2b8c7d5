#!/usr/bin/env python3
"""Goal: the configurations of deploy/ agree with the service.

usage: test_deploy.py

What a server refuses itself has an Error; the largest body is a number in each
configuration.  scripts/errors --check holds the texts of the errors, suite.py meets them.
"""

import re
import sys

from lib_service import TOP, Tally, run_scenario

DEPLOY = TOP / "deploy"
# The statuses that a server was seen to make itself, and not to change; where its bodies are.
NEEDED = {
    "lighttpd": ({400, 404, 411, 413, 431, 500, 501, 503, 504, 505}, None, ""),
    "apache": ({400, 404, 405, 413, 414, 417, 500, 502, 503, 504}, "errors.conf",
               r'^ErrorDocument (\d+) "\{'),
    "nginx": ({400, 404, 405, 413, 431, 501, 503}, "errors.conf", r"^\t+return (\d+) '\{"),
}


def check_errors(tally: Tally) -> None:
    for server, (needed, name, pattern) in NEEDED.items():
        folder = DEPLOY / server
        told = [path.stem for path in folder.glob("errors/*.html")] if name is None else \
            re.findall(pattern, (folder / name).read_text(), re.MULTILINE)
        tally.check(needed <= set(map(int, told)),
                    f"{server} has an Error for every status that it makes", told)


def check_limit(tally: Tally) -> None:
    """The largest body, which the service has from deploy/settings.txt."""

    def number(path: str, pattern: str) -> int:
        found = re.findall(pattern, (TOP / path).read_text(), re.MULTILINE)
        if len(found) != 1:
            raise ValueError(f"{path} has not once: {pattern}")
        return int(found[0])

    limit = number("deploy/settings.txt", r"BODY_BYTES_MAX\t(\d+)")
    limits = {
        "lighttpd": 1024
        * number("deploy/lighttpd/common.conf", r"^server.max-request-size = (\d+)$"),
        "apache, chunked": number("deploy/apache/errors.conf", r"^LimitRequestBody (\d+)$"),
        "apache": number(
            "deploy/apache/errors.conf", r"req_novary\('Content-Length'\) -gt (\d+)"),
        "nginx": number("deploy/nginx/common.conf", r"^client_max_body_size (\d+);$"),
        "nginx's buffer": number(
            "deploy/nginx/common.conf", r"^client_body_buffer_size (\d+);$"),
        # One more shows that there is more.
        "apache's buffer": number("deploy/apache/proxy_fcgi.conf", r"BufferSize (\d+)$")
        - 1,
    }
    for name, found in limits.items():
        tally.check(found == limit, f"{name}: a body may have {limit} bytes", found)
    limits = [
        number("deploy/lighttpd/common.conf", r"^server.max-connections = (\d+)$"),
        number("deploy/apache/common.conf", r"^MaxRequestWorkers (\d+)$"),
        number("deploy/nginx/fastcgi.conf", r"^\tworker_connections (\d+);$"),
        number("deploy/nginx/fastcgi.conf", r"^\tlimit_conn plant_store (\d+);$"),
    ]
    row = r"^\| concurrent connections \| (\d+) \| (\d+) \| (\d+) .*\n.* (\d+); then"
    table = re.search(row, (DEPLOY / "servers.md").read_text(), re.MULTILINE)
    found = table and list(map(int, table.groups()))
    tally.check(found == limits, "the document has these limits", (found, limits))


def check_scrape(tally: Tally) -> None:
    """Where Prometheus asks, the recommended nginx listens, and has this path."""
    scrape = (DEPLOY / "prometheus" / "prometheus.yml").read_text()
    path = re.search(r"metrics_path: /(\w+)$", scrape, re.MULTILINE)[1]
    target = re.search(r'targets: \["(.*)"\]', scrape)[1]
    nginx = (DEPLOY / "nginx" / "fastcgi.conf").read_text()
    well = f"\tlisten {target} " in nginx and f"location ~ ^/({path}|" in nginx
    tally.check(well, "Prometheus asks where nginx answers", (target, path))


def scenario(tally: Tally) -> None:
    with tally.part("the errors are read"):
        check_errors(tally)
    with tally.part("the job is read"):
        check_scrape(tally)
    with tally.part("the limits are read"):
        check_limit(tally)


if __name__ == "__main__":
    sys.exit(run_scenario(scenario))
