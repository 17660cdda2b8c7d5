#!/usr/bin/env python3
"""Drives `plant-store token` as an operator does.

Usage: test_token_command.py build/plant-store
"""

import datetime
import os
import pty
import re
import subprocess
import sys
import tempfile

USAGE, DATAERR, CANTCREAT, IOERR, CONFIG = 64, 65, 73, 74, 78
TOKEN = re.compile(r"pst_[A-Za-z0-9_-]{43}\n")

program = os.path.abspath(sys.argv[1])
failures = 0


def check(sentence, condition, seen=""):
    global failures
    if condition:
        print("ok - " + sentence)
    else:
        failures += 1
        print("not ok - " + sentence)
        print("#   saw: {!r}".format(seen))


def run(*arguments, **options):
    options.setdefault("stdout", subprocess.PIPE)
    options.setdefault("env", environment)
    return subprocess.run([program, *arguments], stderr=subprocess.PIPE,
                          text=True, **options)


def expires_of(name):
    """The expiry that list shows for the name, in seconds since 1970."""
    for line in run("token", "list").stdout.splitlines():
        if line.split()[0] == name:
            text = line.split()[1]
            return datetime.datetime.strptime(
                text, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    return None


def content():
    with open(path) as file:
        return file.read()


def test_help_and_version():
    for arguments in ["--help"], ["help"]:
        result = run(*arguments)
        check("{} lists the subcommands".format(arguments[0]),
              result.returncode == 0 and "\ntoken " in result.stdout, result)
    result = run("token", "--help")
    check("token --help tells its usage", result.returncode == 0 and
          result.stdout.startswith("Usage: plant-store token"), result)
    result = run("--version")
    check("--version is name and number", result.returncode == 0 and
          re.fullmatch(r"plant-store \d+\.\d+\.\d+\n", result.stdout),
          result)


def test_usage_errors():
    for arguments, hint in [
            ([], "plant-store --help"),
            (["nothing"], "plant-store --help"),
            (["--nothing"], "plant-store --help"),
            (["token"], "plant-store token --help"),
            (["token", "nothing"], "plant-store token --help"),
            (["token", "--nothing"], "plant-store token --help"),
            (["token", "add"], "plant-store token --help"),
            (["token", "revoke"], "plant-store token --help"),
            (["token", "add", "a", "b"], "plant-store token --help"),
            (["token", "list", "a"], "plant-store token --help"),
            (["token", "list", "--file", ""], "plant-store token --help"),
            (["token", "add", "a", "--expires"], "plant-store token --help"),
            (["token", "list", "--expires", "1d"],
             "plant-store token --help")]:
        result = run(*arguments)
        check("'{}' is a usage error with a hint".format(" ".join(arguments)),
              result.returncode == USAGE and result.stdout == "" and
              result.stderr.startswith("plant-store: ") and
              result.stderr.count("\n") == 1 and hint in result.stderr,
              result)


def test_expiry_that_is_refused():
    for when in ["", "soon", "90", "d", "-1d", "1w", "1d ", "1.5h",
                 "2027-02-30", "2027-1-1", "2027-01-31T00:00:00", "0d",
                 "2020-01-01", "2020-01-01T00:00:00Z", "9999999999d",
                 "999999999d"]:
        result = run("token", "add", "refused", "--expires", when)
        check("--expires '{}' is refused and adds nothing".format(when),
              result.returncode == USAGE and result.stdout == "" and
              not os.path.exists(path), result)


def test_add():
    result = run("token", "add", "plain")
    check("add prints the token alone", result.returncode == 0 and
          TOKEN.fullmatch(result.stdout) and result.stderr == "", result)
    check("the token is not in the file",
          result.stdout.strip() not in content(), content())
    check("the line has name, digest and creation", re.fullmatch(
        r"plain [0-9a-f]{64} # created \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\n",
        content()), content())
    result = run("token", "add", "plain")
    check("a taken name is refused", result.returncode == DATAERR and
          "plain is taken" in result.stderr, result)
    result = run("token", "add", "a/b")
    check("a malformed name is refused", result.returncode == USAGE, result)


def test_expiry():
    now = datetime.datetime.now(datetime.timezone.utc).timestamp()
    for name, when, seconds in [("days", "90d", 90 * 86400),
                                ("hours", "12h", 12 * 3600),
                                ("minutes", "30m", 30 * 60)]:
        run("token", "add", "--expires", when, name)
        shown = expires_of(name)
        check("--expires {} counts from now".format(when),
              shown is not None and -2 < shown - now - seconds < 60, shown)
    for name, when, expected in [
            ("date", "2099-01-31", "2099-01-31T00:00:00Z"),
            ("time", "2099-01-31T12:00:00+02:00", "2099-01-31T10:00:00Z")]:
        run("token", "add", name, "--expires=" + when)
        line = [line for line in content().splitlines()
                if line.startswith(name + " ")]
        check("--expires {} is kept in UTC".format(when),
              line and line[0].split()[2] == expected, line)


def test_list():
    digest = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    other = os.path.join(directory, "other")
    with open(other, "w") as file:
        file.write("a " + digest + "\n"
                   "longer-name " + digest[::-1] + " 2020-01-01T00:00:00Z"
                   " # created 2019-01-01T00:00:00Z\n")
    os.chmod(other, 0o600)
    result = run("token", "list", "--file", other)
    check("list aligns its columns and marks what has expired",
          result.returncode == 0 and result.stdout ==
          "NAME         EXPIRES               CREATED\n"
          "a            never                 -\n"
          "longer-name  2020-01-01T00:00:00Z  2019-01-01T00:00:00Z  expired\n",
          result.stdout)
    os.chmod(other, 0o644)
    result = run("token", "list", "--file", other)
    check("a file that others may read is refused with the remedy",
          result.returncode == CONFIG and result.stdout == "" and
          "chmod o= " + other in result.stderr, result)
    result = run("token", "list", "--file", "/proc/self/mem")
    check("a file that cannot be read has the status of its cause",
          result.returncode == os.EX_IOERR and "check the disk" in result.stderr,
          result)
    with open(other, "w") as file:
        file.write("a " + digest + "\nb " + digest + "\n")
    os.chmod(other, 0o600)
    for arguments in ["list"], ["add", "c"], ["revoke", "a"]:
        result = run("token", *arguments, "--file", other)
        check("{} refuses a token with two names".format(arguments[0]),
              result.returncode == CONFIG and result.stdout == "" and
              "line 2, b, has the digest of line 1, a" in result.stderr,
              result)


def test_revoke():
    before = content()
    result = run("token", "revoke", "days")
    check("revoke removes one line and says nothing",
          result.returncode == 0 and result.stdout + result.stderr == "" and
          content() == "".join(line for line in before.splitlines(True)
                               if not line.startswith("days ")), content())
    result = run("token", "revoke", "days")
    check("what is revoked is unknown then", result.returncode == DATAERR and
          "unknown" in result.stderr, result)
    for name in "hours", "minutes", "date", "time":
        run("token", "revoke", name)
    result = run("token", "revoke", "plain")
    check("the last token stays", result.returncode == DATAERR and
          content().startswith("plain "), result)


def test_output_that_is_lost():
    with open("/dev/full", "w") as full:
        result = run("token", "add", "full", stdout=full)
    check("a token that cannot be printed is to be revoked",
          result.returncode == IOERR and
          "plant-store token revoke full" in result.stderr, result)
    result = run("token", "add", "closed", stdout=None,
                 preexec_fn=lambda: os.close(1))
    check("a closed stdout is an error",
          result.returncode == IOERR and "revoke closed" in result.stderr,
          result)
    check("nothing but lines of tokens went into the file",
          run("token", "list").returncode == 0 and
          "pst_" not in content(), content())
    read_end, write_end = os.pipe()
    os.close(read_end)
    result = run("token", "add", "gone", stdout=write_end)
    os.close(write_end)
    check("a reader that went away is an error",
          result.returncode == IOERR and "revoke gone" in result.stderr,
          result)
    with open("/dev/full", "w") as full:
        for arguments in ["--help"], ["--version"], ["token", "list"]:
            result = run(*arguments, stdout=full)
            check("'{}' into a full disk is an error".format(
                " ".join(arguments)), result.returncode == IOERR, result)


def test_terminal():
    master, slave = pty.openpty()
    result = subprocess.run([program, "token", "add", "terminal"],
                            stdout=subprocess.PIPE, stderr=slave,
                            env=environment, text=True)
    os.close(slave)
    said = os.read(master, 1000).decode()
    os.close(master)
    check("on a terminal add says that the token is not shown again",
          TOKEN.fullmatch(result.stdout) and "cannot be shown again" in said
          and said.count("\n") == 1, said)


def test_settings():
    result = run("token", "list", env={"PLANT_STORE_TOKENS": "tokens"})
    check("a relative PLANT_STORE_TOKENS is refused",
          result.returncode == CONFIG and
          "PLANT_STORE_TOKENS" in result.stderr, result)
    result = run("token", "add", "a", "--file", directory + "/none/tokens")
    check("a missing directory is told with its remedy",
          result.returncode == CANTCREAT and "install -d" in result.stderr,
          result)
    before = content()
    other = os.path.join(directory, "fresh")
    result = run("token", "--file", other, "add", "a")
    check("--file goes before PLANT_STORE_TOKENS", result.returncode == 0 and
          os.path.exists(other) and content() == before, result)


with tempfile.TemporaryDirectory() as directory:
    path = os.path.join(directory, "tokens")
    environment = {"PLANT_STORE_TOKENS": path}
    for variable in "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS":
        if variable in os.environ:
            environment[variable] = os.environ[variable]
    test_help_and_version()
    test_usage_errors()
    test_expiry_that_is_refused()
    test_add()
    test_expiry()
    test_list()
    test_revoke()
    test_output_that_is_lost()
    test_terminal()
    test_settings()

sys.exit(1 if failures else 0)
