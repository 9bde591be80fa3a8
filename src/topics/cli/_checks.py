"""What `topics doctor` looks at. Each check only looks; none changes or waits for anything."""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final, Literal

import msgspec

import topics
from topics.cli import _output as out
from topics.client import targets
from topics.client.sync_http import Http
from topics.core.ages import AHEAD_MS
from topics.errors import NotReady, TopicsError, Unauthorized
from topics.storage.fs import is_open_to_all

GOOD: Final = "ok"
NOTE: Final = "note"
BAD: Final = "bad"
MIN_OPEN_FILES = 512
ROOMY_OPEN_FILES = 4096
MIN_FREE_BYTES = 1 << 30
MIN_FREE_SHARE = 0.05
MAX_SKEW_SECONDS = 5.0
PATIENCE_SECONDS = 5.0
OLD_STAGE_SECONDS = 600.0
MAX_LOOKS = 100


@dataclass(frozen=True)
class Check:
    """One thing that was looked at; `remedy` says what to do when it is not good."""

    name: str
    state: Literal["ok", "note", "bad"]
    found: str
    remedy: str = ""


def machine() -> Iterator[Check]:
    """What holds here whatever the log is."""
    yield Check("topics", GOOD, f"{topics.__version__} on Python {platform.python_version()}")
    yield open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield from spark()


def open_files(soft: int) -> Check:
    """A server needs a file for every connection, log and segment."""
    if soft < 0 or soft >= ROOMY_OPEN_FILES:
        return Check("open files", GOOD, "no limit" if soft < 0 else f"up to {soft}")
    if soft >= MIN_OPEN_FILES:
        return Check("open files", NOTE, f"up to {soft}", "for many clients: ulimit -n 65536")
    return Check("open files", BAD, f"only {soft}", "raise the limit: ulimit -n 65536")


def spark() -> Iterator[Check]:
    """Java and Spark. Neither is required, but one without the other is of no use."""
    from topics.spark import java  # noqa: PLC0415 - small, but only for this

    has_spark = importlib.util.find_spec("pyspark") is not None  # finds it, does not import it
    chosen = java.search().chosen
    if not has_spark:
        yield Check("spark", NOTE, "not installed", "if wanted: pip install 'topics[spark]'")
    elif chosen is None:
        yield Check("spark", BAD, "PySpark without a Java that it runs on", java.REMEDY)
    else:
        yield Check("spark", GOOD, f"PySpark, Java {chosen.shown_version} ({chosen.source})")


def chosen_target(where: targets.Target) -> Check:
    key = ", with a key" if where.token else ""
    return Check("target", GOOD, f"{where} (chosen by {where.source}){key}")


def token_file(path: str) -> Check:
    """Whether only its owner can read the key."""
    mode = stat.S_IMODE(os.stat(os.path.expanduser(path)).st_mode)
    if mode & 0o077:
        return Check("key file", BAD, f"others can read {path}", f"chmod 600 {path}")
    return Check("key file", GOOD, path)


# A server


def server(target: targets.Target) -> Iterator[Check]:
    """Whether it answers, is ready, takes the key and agrees about the time."""
    assert target.url is not None
    with Http(target.url, token=target.token, timeout=PATIENCE_SECONDS, retries=0) as http:
        asked = time.time()
        try:
            answer = http.request("GET", "/v0/health")
        except TopicsError as error:
            yield unreachable(target.url, error)
            return
        took = time.time() - asked
        yield Check("server", GOOD, f"answers in {took * 1000:.1f} ms")
        yield clock(answer.headers.get("date"), asked + took / 2)
        yield ready(http)
        yield key(http)
        yield from server_times(http, time.time())
        yield from server_stages(http, time.time())


def unreachable(url: str, error: TopicsError) -> Check:
    """Why the further checks of a server are impossible."""
    if isinstance(error, Unauthorized):  # health asks for a key where TOPICS_PROBE_AUTH is set
        return Check("server", BAD, str(error), "name the key's file with --token-file")
    start = "topics serve" if url == targets.DEFAULT_URL else f"curl {url}/v0/health"
    return Check("server", BAD, str(error), f"is it running? {start}")


def clock(date: str | None, now: float) -> Check:
    """The header is in whole seconds, so only a real difference counts."""
    try:
        there = parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        return Check("clock", NOTE, "the server does not tell its time")
    skew = there - now
    if abs(skew) <= MAX_SKEW_SECONDS:
        return Check("clock", GOOD, f"within {MAX_SKEW_SECONDS:.0f} s of the server's")
    side = "ahead of" if skew > 0 else "behind"
    return Check(
        "clock",
        BAD,
        f"the server's clock is {abs(skew):.0f} s {side} this machine's",
        "set both by NTP: timedatectl set-ntp true",
    )


def ready(http: Http) -> Check:
    """Whether it takes requests; if not, why."""
    try:
        http.request("GET", "/v0/ready")
    except NotReady as error:
        reason = (error.detail or {}).get("reason")
        remedy = {
            "disk_full": "free space on the server's disk: df -h",
            "wal_failed": "check the server's disk, then restart it",
        }.get(str(reason), "wait: topics doctor tells when it is done")
        return Check("ready", BAD, str(error), remedy)
    except TopicsError as error:
        return Check("ready", BAD, str(error), "see the server's log")
    return Check("ready", GOOD, "takes requests")


def key(http: Http) -> Check:
    """Whether it lets us in."""
    try:
        http.request("GET", "/v0/topics", query={"page_size": "1"})
    except Unauthorized as error:
        return Check("key", BAD, str(error), "name its file: topics doctor --token-file PATH")
    except TopicsError as error:
        return Check("key", NOTE, str(error), "it may still do what you need")
    return Check("key", GOOD, "the server lets us read")


def server_times(http: Http, now: float) -> Iterator[Check]:
    """Topics whose newest record a wrong clock has stamped; of very many only the first."""
    try:
        listed = http.request("GET", "/v0/topics", query={"page_size": str(MAX_LOOKS)})
        newest = {}
        for topic in msgspec.json.decode(listed.body)["topics"]:
            name = topic["topic"]
            answer = http.request("GET", f"/v0/topics/{name}", query={"touch": "false"})
            newest[name] = msgspec.json.decode(answer.body)["last_write_ts"] or 0
    except TopicsError:
        return  # an earlier check has said why
    yield newest_record(newest, now)


def server_stages(http: Http, now: float) -> Iterator[Check]:
    """Stages that no commit has come for in a long time; nothing on a server that lists none."""
    try:
        listed = msgspec.json.decode(http.request("GET", "/v0/stages").body)["stages"]
    except TopicsError:
        return
    old = [each for each in listed if now - each["newest_ts"] / 1000 > OLD_STAGE_SECONDS]
    if not old:
        yield Check("stages", GOOD, f"{out.counted(len(listed), 'epoch')} under way")
        return
    apps = list(dict.fromkeys(each["app"] for each in old))
    held = out.size(sum(each["disk_bytes"] for each in old))
    more = f" and {len(apps) - 1} more" if len(apps) > 1 else ""
    yield Check(
        "stages",
        NOTE,
        f"{held} of epochs that were not committed, silent for over 10 min: {apps[0]}{more}",
        f"if its driver is dead: topics spark stages drop {apps[0]}",
    )


# A directory


def directory(path: str) -> Iterator[Check]:
    """Whether it can be read and grow."""
    if not os.path.isdir(path):
        yield Check("directory", BAD, f"{path} does not exist", f"topics create TOPIC --dir {path}")
        return
    yield disk(path)
    if is_open_to_all(path):
        open_to = f"every user of this machine can write to {path}"
        yield Check("rights", BAD, open_to, f"chmod 700 {path}")
    try:
        with topics.open(path, read_only=True) as log:
            found = log.topics()
            newest = {
                topic.topic: record.ts
                for topic in found
                for record in log.read(
                    topic.topic, after=max(0, topic.head_seq - 1), limit=1
                ).records
            }
    except (TopicsError, OSError) as error:
        yield Check("directory", BAD, str(error), f"topics verify {path}")
        return
    yield Check("directory", GOOD, f"{path} can be read, {out.counted(len(found), 'topic')}")
    yield newest_record(newest, time.time())


def disk(path: str) -> Check:
    """Room to grow: a full disk stops every write."""
    usage = shutil.disk_usage(path)
    share = usage.free / usage.total
    found = f"{usage.free / MIN_FREE_BYTES:.1f} GiB free ({share:.0%})"
    if usage.free < MIN_FREE_BYTES or share < MIN_FREE_SHARE:
        return Check("disk", BAD, found, f"free space there: df -h {path}")
    return Check("disk", GOOD, found)


def newest_record(newest: Mapping[str, int], now: float) -> Check:
    """Records of the future mean that the clock went back since, or was wrong once."""
    topic = max(newest, key=newest.__getitem__, default="")
    ahead = newest.get(topic, 0) / 1000 - now
    if ahead <= MAX_SKEW_SECONDS:
        return Check("record times", GOOD, "no record is in the future")
    found = f"the newest record of {topic} is {out.span(ahead)} in the future"
    if ahead * 1000 <= AHEAD_MS:
        return Check("record times", BAD, found, "set the clock by NTP: timedatectl set-ntp true")
    return Check(
        "record times",
        BAD,
        f"{found}: the clock is wrong, or was when it was written",
        f"check the clock: date -u; if it is right, see topics explain {topic}",
    )
