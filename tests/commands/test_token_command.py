#!/usr/bin/env python3
"""Drives `plant-store token` as an operator does.

Usage: test_token_command.py build/plant-store
"""

import datetime
import os
import pathlib
import re
import sys
import tempfile

from lib_command import CANTCREAT, CONFIG, DATAERR, IOERR, USAGE, expect, through_terminal
from lib_service import Tally, passed_on, run, run_scenario

TOKEN = re.compile(r"pst_[A-Za-z0-9_-]{43}\n")

program = os.path.abspath(sys.argv[1])


def token(*arguments, **options):
    return plant_store("token", *arguments, **options)


def plant_store(*arguments, **options):
    return run(program, *arguments, text=True, **{"env": environment} | options)


def expires_of(name):
    """The expiry that list shows for the name, in seconds since 1970."""
    for line in token("list").stdout.splitlines():
        if line.split()[0] == name:
            text = line.split()[1]
            return datetime.datetime.strptime(
                text, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    return None


def content():
    return pathlib.Path(path).read_text()


def test_help_and_version(tally):
    for arguments, pattern in [
            (["--help"], r"(?s).*\ntoken .*"), (["help"], r"(?s).*\ntoken .*"),
            (["token", "--help"], r"(?s)Usage: plant-store token.*"),
            (["--version"], r"plant-store \d+\.\d+\.\d+\S*\n")]:
        result = plant_store(*arguments)
        tally.check(result.returncode == 0 and
                    bool(re.fullmatch(pattern, result.stdout)),
                    f"{' '.join(arguments)} prints what it should", result)


def test_usage_errors(tally):
    for arguments in (
            "", "nothing", "--nothing", "token", "token nothing",
            "token --nothing", "token add", "token revoke", "token add a b",
            "token list a", "token list --file=", "token add a --expires",
            "token list --expires 1d"):
        command = "plant-store token" if "token" in arguments else "plant-store"
        result = plant_store(*arguments.split())
        expect(tally, result, f"'{arguments}' is a usage error with a hint", USAGE,
               "", ["plant-store: ", f"{command} --help"])
        tally.check(result.stderr.count("\n") == 1, "in one line", result)


def test_expiry_that_is_refused(tally):
    for when in ["", "soon", "90", "d", "-1d", "1w", "1d ", "1.5h",
                 "2027-02-30", "2027-1-1", "2027-01-31T00:00:00", "0d",
                 "2020-01-01", "2020-01-01T00:00:00Z", "9999999999d",
                 "999999999d"]:
        result = token("add", "refused", "--expires", when)
        expect(tally, result, f"--expires '{when}' is refused", USAGE, "")
    expect(tally, token("add", "x", "--expires", "52w"), "what it may be is told", USAGE, "",
           "token: invalid time: 52w; use 90d, 12h, 30m, 2027-01-31 or 2027-01-31T12:00:00Z; see:")
    tally.check(not os.path.exists(path), "a refused expiry adds nothing")


def test_add(tally):
    result = token("add", "plain")
    expect(tally, result, "add succeeds and logs nothing", err="")
    tally.check(bool(TOKEN.fullmatch(result.stdout)), "add prints the token alone",
                result)
    line = r"plain [0-9a-f]{64} # created \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n"
    tally.check(bool(re.fullmatch(line, content())),
                "the line has name, digest and creation, not the token", content())
    expect(tally, token("add", "plain"), "a taken name is refused", DATAERR, "", "plain is taken")
    expect(tally, token("add", "a/b"), "a malformed name is refused", USAGE)


def test_expiry(tally):
    now = datetime.datetime.now(datetime.timezone.utc).timestamp()
    for name, when, seconds in [("days", "90d", 90 * 86400),
                                ("hours", "12h", 12 * 3600),
                                ("minutes", "30m", 30 * 60)]:
        token("add", "--expires", when, name)
        shown = expires_of(name)
        tally.check(shown is not None and -2 < shown - now - seconds < 60,
                    f"--expires {when} counts from now", shown)
    for name, when, expected in [
            ("date", "2099-01-31", "2099-01-31T00:00:00Z"),
            ("time", "2099-01-31T12:00:00+02:00", "2099-01-31T10:00:00Z")]:
        token("add", name, "--expires=" + when)
        found = re.search(rf"^{name} \S+ {expected} ", content(), re.MULTILINE)
        tally.check(bool(found), f"--expires {when} is kept in UTC", content())


def test_list(tally):
    digest = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    other = pathlib.Path(directory, "other")
    other.touch(0o600)
    other.write_text(f"a {digest}\nlonger-name {digest[::-1]} 2020-01-01T00:00:00Z"
                     " # created 2019-01-01T00:00:00Z\n")
    listing = ["list", "--file", str(other)]
    expect(tally, token(*listing), "list aligns columns and marks what has expired", 0,
           "NAME         EXPIRES               CREATED\n"
           "a            never                 -\n"
           "longer-name  2020-01-01T00:00:00Z  2019-01-01T00:00:00Z  expired\n")
    other.chmod(0o644)
    expect(tally, token(*listing), "a file that others may read is refused with remedy",
           CONFIG, "", f"chmod o= {other}")
    expect(tally, token("list", "--file", "/proc/self/mem"),
           "a file that cannot be read has the status of its cause", IOERR, "",
           "check the disk")
    other.write_text(f"a {digest}\nb {digest}\n")
    other.chmod(0o600)
    for arguments in ["list"], ["add", "c"], ["revoke", "a"]:
        result = token(*arguments, "--file", str(other))
        expect(tally, result, f"{arguments[0]} refuses a token with two names", CONFIG,
               "", "line 2, b, has the digest of line 1, a")


def test_revoke(tally):
    before = content()
    expect(tally, token("revoke", "days"), "revoke prints nothing", 0, "", "")
    tally.check(content() == re.sub("(?m)^days .*\n", "", before),
                "revoke removes one line", content())
    expect(tally, token("revoke", "days"), "what is revoked is unknown then",
           DATAERR, "", "unknown")
    for name in "hours", "minutes", "date", "time":
        token("revoke", name)
    expect(tally, token("revoke", "plain"), "the last token is revoked too")
    tally.check(content() == "", "nothing is left in the file", content())
    expect(tally, token("list"), "a file without a token lists none", 0,
           "NAME  EXPIRES               CREATED\n")


def test_renew(tally):
    """Both tokens of a name are valid; the older one ends in a week, or at the time that is given."""
    token("add", "kept")
    token("add", "other", "--expires", "2099-01-31")
    before = content().splitlines()
    result = token("renew", "kept", "--expires", "365d")
    tally.check(bool(TOKEN.fullmatch(result.stdout)), "renew prints a second token", result)
    shown = token("list").stdout
    tally.check(shown.count("\nkept ") == 2, "list shows both", shown)
    now = datetime.datetime.now(datetime.timezone.utc).timestamp()
    tally.check(-2 < expires_of("kept") - now - 7 * 86400 < 60, "the older one ends in a week", shown)
    old, other, new = content().splitlines()
    name, digest, _, rest = old.split(" ", 3)
    tally.check([f"{name} {digest} {rest}", other] == before and new.startswith("kept "),
                "and nothing else of the file is changed", content())
    expect(tally, token("renew", "kept"), "a name has no third one", DATAERR, "", "revoke --old")
    expect(tally, token("revoke", "--old", "kept"), "the older one can be ended before", 0, "", "")
    tally.check(content().splitlines() == [other, new], "and that alone", content())
    expect(tally, token("revoke", "--old", "kept"), "an only one is not an older one", DATAERR, "", "one token")
    token("renew", "other", "--overlap", "2098-01-31T00:00:00Z")
    tally.check(" 2098-01-31T00:00:00Z " in content(), "--overlap is when the older one ends", content())
    path_of = pathlib.Path(path)
    path_of.write_text(content().replace(" 2098-", " 2020-"))
    token("renew", "other", "--overlap", "2100-01-31")
    tally.check(content().count("\nother ") == 2 and content().startswith(f"{new}\nother "),
                "a renewal removes an older one that has expired", content())
    tally.check(" 2100-01-31T00:00:00Z " in content(), "--overlap lasts", content())
    expect(tally, token("renew", "nobody"), "an unknown name is not renewed", DATAERR, "", "unknown")
    expect(tally, token("add", "x", "--overlap", "7d"), "--overlap is for renew", USAGE, "")
    for each in "kept", "other":
        expect(tally, token("revoke", each), f"revoke ends both tokens of {each}", 0)
    tally.check(content() == "", "so that nothing is left", content())


def test_output_that_is_lost(tally):
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open("/dev/full", "w") as full:
        for name, how in [
                ("full", {"stdout": full}), ("gone", {"stdout": write_end}),
                ("closed", {"stdout": None, "preexec_fn": lambda: os.close(1)})]:
            expect(tally, token("add", name, **how),
                   f"a token whose output is {name} is to be revoked", IOERR,
                   err=f"plant-store token revoke {name}")
        for arguments in ["--help"], ["--version"], ["token", "list"]:
            expect(tally, plant_store(*arguments, stdout=full),
                   f"'{' '.join(arguments)}' into a full disk is an error", IOERR)
    os.close(write_end)
    tally.check(token("list").returncode == 0 and "pst_" not in content(),
                "nothing but lines of tokens went into the file", content())


def test_terminal(tally):
    result, said = through_terminal(lambda slave: token("add", "terminal", stderr=slave))
    said = said.decode()
    tally.check(bool(TOKEN.fullmatch(result.stdout)) and said.count("\n") == 1
                and "cannot be shown again" in said,
                "on a terminal add says that the token is not shown again", said)


def test_settings(tally):
    expect(tally, token("list", env={"PLANT_STORE_TOKENS": "tokens"}),
           "a relative PLANT_STORE_TOKENS is refused", CONFIG, "", "PLANT_STORE_TOKENS")
    expect(tally, token("add", "a", "--file", directory + "/none/tokens"),
           "a missing directory is reported with its remedy", CANTCREAT, "",
           "install -d")
    before = content()
    other = os.path.join(directory, "fresh")
    result = token("--file", other, "add", "a")
    tally.check(result.returncode == 0 and os.path.exists(other) and
                content() == before, "--file goes before PLANT_STORE_TOKENS", result)


def scenario(tally: Tally) -> None:
    for test in (test_help_and_version, test_usage_errors,
                 test_expiry_that_is_refused, test_add, test_expiry, test_list,
                 test_revoke, test_renew, test_output_that_is_lost, test_terminal, test_settings):
        test(tally)


with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, "tokens")
    environment = passed_on() | {"PLANT_STORE_TOKENS": path}
    sys.exit(run_scenario(scenario))
