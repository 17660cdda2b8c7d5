#!/usr/bin/env python3
"""A second reader of the journal, written from plant-store-journal(5) alone.

    second_reader.py [--plants] FILE

prints one verdict: `ok PLANTS BYTES`, `torn OFFSET`, `damaged OFFSET`,
`duplicate OFFSET` or `version N`. With --plants it first prints the plants
up to the end of the journal. It shares no code with the program: where the two
disagree, the manual page or one of them is wrong.
"""

import calendar
import re
import sys

RECORD_MAX = 1048832
BATCH_MAX = 4456704
INT64_MAX = 2**63 - 1

# Every pattern admits the one encoding of its value, so a line that matches
# would be encoded to the same bytes.
UUID = rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
CRC = rb"[0-9a-f]{8}"
NATURAL = rb"0|[1-9][0-9]{0,18}"
INTEGER = rb"0|-?[1-9][0-9]{0,18}"
TIME = rb"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)\.\d{3}Z"
PLAIN = rb'[^"\\\x00-\x1f]*'
ESCAPE = rb'\\(?:[btnfr"\\]|u00(?:0[0-7bef]|1[0-9a-f]))'
STRING = rb'"' + PLAIN + rb"(?:" + ESCAPE + PLAIN + rb')*"'

HEADER = re.compile(
    rb'\{"plant-store":1,"store":"(' + UUID + rb')","crc":"(' + CRC + rb')"\}\n')
VERSION = re.compile(rb'\{"plant-store":(' + NATURAL + rb")(?![0-9])")
# Without the newline where the file ends before it.
TEXT = re.compile(rb"[^\n]+\n?")
RECORD = re.compile(
    rb'\{"seq":(' + NATURAL + rb'),"safe":(' + NATURAL + rb'),'
    rb'"prev":"(' + CRC + rb')","at":"' + TIME + rb'"'
    rb'(?:,"by":"[A-Za-z0-9._-]{1,64}",'
    rb'"plant":(\{"id":(' + INTEGER + rb'),"name":' + STRING +
    rb'(?:,"tag":' + STRING + rb")?\}))?"
    rb',"crc":"(' + CRC + rb')"\}\n'
)


def crc_table():
    """The CRC-32C of each byte (the reflected polynomial of RFC 3720)."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc_table()


def crc32c(data):
    """The CRC-32C of the bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Record:
    """The values of a record that is valid by itself."""

    def __init__(self, match):
        self.seq = int(match[1])
        self.safe = int(match[2])
        self.prev = match[3]
        self.plant = match[10]
        self.id = match[11] and int(match[11])
        self.crc = match[12]


def exists(year, month, day, hour, minute, second):
    """Whether a Gregorian calendar and a clock without leap seconds have it."""
    if not 1 <= month <= 12 or hour > 23 or minute > 59 or second > 59:
        return False
    days = calendar.mdays[month] + (month == 2 and calendar.isleap(year))
    return 1 <= day <= days


def is_utf8(line):
    """Whether the bytes are valid UTF-8."""
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def sums(uuid, line, crc):
    """Whether the crc of a line is right in the store with this UUID."""
    return b"%08x" % crc32c(uuid + line[: line.rindex(b',"crc"')]) == crc


def by_itself(uuid, line):
    """The record on a line that is valid by itself, or None."""
    match = RECORD.fullmatch(line) if len(line) <= RECORD_MAX else None
    if not match or not exists(*(int(match[i]) for i in range(4, 10))):
        return None
    record = Record(match)
    if max(record.seq, record.safe) > INT64_MAX:
        return None
    if record.plant and not -INT64_MAX - 1 <= record.id <= INT64_MAX:
        return None
    if not is_utf8(line) or not sums(uuid, line, record.crc):
        return None
    return record


def line_at(data, offset):
    """The bytes from an offset up to a newline, or up to the end of data."""
    newline = data.find(b"\n", offset)
    return data[offset : newline + 1 if newline >= 0 else len(data)]


def later_watermark(data, end, uuid):
    """Whether a record at or behind the end has a watermark above it."""
    for line in TEXT.finditer(data, end):
        begin = data.rfind(b'{"seq":', line.start(), line.end())
        record = by_itself(uuid, data[begin : line.end()]) if begin >= 0 else None
        if record and record.safe > end:
            return True
    return False


def read(data):
    """The verdict on a journal, and the plant objects that it holds."""
    first = line_at(data, 0)
    version = VERSION.match(first)
    if version and version[1] != b"1" and int(version[1]) <= INT64_MAX:
        return "version %d" % int(version[1]), []
    header = HEADER.fullmatch(first)
    if not header or not sums(header[1], first, header[2]):
        return "damaged 0", []
    uuid, prev, seq, end = header[1], header[2], 0, len(first)
    plants, ids, duplicate = [], set(), None
    while True:
        line = line_at(data, end)
        record = by_itself(uuid, line)
        if not record or record.seq != seq + 1:
            break
        if record.prev != prev or record.safe > end:
            break
        if record.id in ids and duplicate is None:
            duplicate = end
        if record.plant:
            ids.add(record.id)
            plants.append(record.plant)
        seq, prev, end = record.seq, record.crc, end + len(line)
    left = len(data[end:].rstrip(b"\n"))
    if later_watermark(data, end, uuid) or left > BATCH_MAX:
        verdict = "damaged %d" % end
    elif duplicate is not None:
        verdict = "duplicate %d" % duplicate
    elif left:
        verdict = "torn %d" % end
    else:
        verdict = "ok %d %d" % (len(plants), end)
    return verdict, plants


def main():
    """Reads the file that the command line names; 0 exactly for `ok`."""
    *options, path = sys.argv[1:] or [""]
    if not path or options not in ([], ["--plants"]):
        sys.exit("usage: second_reader.py [--plants] FILE")
    with open(path, "rb") as file:
        verdict, plants = read(file.read())
    for plant in plants if options else []:
        sys.stdout.buffer.write(plant + b"\n")
    sys.stdout.flush()
    sys.stdout.buffer.write(verdict.encode() + b"\n")
    return 0 if verdict.startswith("ok") else 1


if __name__ == "__main__":
    sys.exit(main())
