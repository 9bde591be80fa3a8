"""What `topics top` shows: as a screen, as lines, as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from topics.cli import _output as out
from topics.cli._sampling import SampleDelta

if TYPE_CHECKING:
    from rich.console import RenderableType

HEADINGS = ["topic", "in/s", "head", "records", "bytes", "ready", "leased", "lag", "lag time"]
LEAVE_OUT = ("head", "bytes", "lag time", "leased", "ready", "records", "lag")
"""What a narrow screen does without, first things first."""
GAP = 2
NAME_WIDTH = 24
HEADER_LINES = 7
BAR = 20


def facts(change: SampleDelta) -> dict[str, Any]:
    """For programs. An unknown number is null."""
    server = change.now.server
    return {
        "seconds": round(change.seconds, 3),
        "records_per_second": change.appended_in_all(),
        "bytes_per_second": change.rate("wal_bytes_written_total"),
        "fsyncs_per_second": change.rate("wal_fsyncs_total"),
        "throttled_per_second": change.rate("throttled_total"),
        "fsync_us_p50": _finite(change.fsync_us(0.5)),
        "fsync_us_p99": _finite(change.fsync_us(0.99)),
        "pressure": server.get("pressure"),
        "queue_depth": server.get("wal_queue_depth"),
        "leases": change.now.leases,
        "streams": server.get("sse_connections"),
        "uptime_ms": server.get("uptime_ms_total"),
        "ready": bool(server["ready"]) if "ready" in server else None,
        "topics": [_topic_facts(change, topic) for topic in _in_order(change)],
        "cursors": [
            {
                "topic": lag.topic,
                "cursor": lag.cursor,
                "lag_records": lag.records,
                "lag_seconds": lag.seconds,
            }
            for lag in change.now.lags
        ],
    }


def _topic_facts(change: SampleDelta, topic: str) -> dict[str, Any]:
    numbers = change.now.topics[topic]
    return {
        "topic": topic,
        "records_per_second": change.appended(topic),
        "head_seq": numbers.head,
        "count": numbers.records,
        "bytes": numbers.bytes,
        "ready": numbers.ready,
        "in_flight": numbers.in_flight,
    }


def print_once(change: SampleDelta, where: str) -> None:
    """Plain lines, for a pipe or a glance."""
    for line in summary(change, where):
        print(line)
    print()
    if change.now.topics:
        out.print_table(HEADINGS, [_row(change, topic) for topic in _in_order(change)])
    else:
        print("no topics")


def screen(
    change: SampleDelta, where: str, *, height: int, width: int, trouble: str
) -> RenderableType:
    """The whole screen; `trouble` says why the numbers are old."""
    from rich import box  # noqa: PLC0415 - only for a screen
    from rich.console import Group  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    head = [Text(line, no_wrap=True, overflow="ellipsis") for line in summary(change, where)]
    head[0].stylize("bold")
    if trouble:
        head.append(Text(out.safe(trouble), style="bold red", no_wrap=True, overflow="ellipsis"))
    table = Table(box=box.SIMPLE_HEAD, expand=True, pad_edge=False, show_edge=False)
    names = _in_order(change)
    room = max(1, height - HEADER_LINES - len(head))
    rows = [[out.safe(str(cell)) for cell in _row(change, topic)] for topic in names[:room]]
    columns = fitting(rows, width)
    for index in columns:
        justify: Literal["left", "right"] = "right" if index else "left"
        table.add_column(HEADINGS[index], justify=justify, no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(row[index] for index in columns))
    hidden = len(names) - room
    foot = f"{hidden} more topics; " if hidden > 0 else ""
    return Group(*head, Text(), table, Text(f"{foot}q quits", style="dim"))


def fitting(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns there is room for, by their places; a long name may be cut, a number never."""
    needed = [max(map(len, column)) for column in zip(HEADINGS, *rows, strict=True)]
    needed[0] = min(needed[0], NAME_WIDTH)
    columns = list(range(len(HEADINGS)))
    for heading in LEAVE_OUT:
        if sum(needed[index] + GAP for index in columns) - GAP <= width:
            break
        columns.remove(HEADINGS.index(heading))
    return columns


def summary(change: SampleDelta, where: str) -> list[str]:
    """What holds for the log as a whole."""
    now = change.now
    count = f"{len(now.topics)}+ topics" if now.truncated else out.counted(len(now.topics), "topic")
    lines = [f"topics top  {where}  {count}"]
    rate = f"writes {change.appended_in_all():.0f} records/s"
    if not now.server:
        return [*lines, f"{rate}  (a directory: what its owner is doing is not known)"]
    written = change.rate("wal_bytes_written_total") or 0.0
    syncs = change.rate("wal_fsyncs_total") or 0.0
    throttled = change.rate("throttled_total") or 0.0
    pressure = now.server.get("pressure", 0.0)
    lines[0] += f"  up {out.span(now.server.get('uptime_ms_total', 0.0) / 1000)}"
    lines[0] += "" if now.server.get("ready") else "  NOT READY"
    lines.append(f"{rate}  log {out.size(written)}/s  throttled {throttled:.0f}/s")
    lines.append(
        f"fsync {syncs:.0f}/s  p50 {_latency(change.fsync_us(0.5))}"
        f"  p99 {_latency(change.fsync_us(0.99))}"
    )
    filled = round(pressure * BAR)
    lines.append(
        f"pressure [{'#' * filled}{'.' * (BAR - filled)}] {pressure:.2f}"
        f"  queued {now.server.get('wal_queue_depth', 0):.0f}"
        f"  leases {now.leases}  streams {now.server.get('sse_connections', 0):.0f}"
    )
    return lines


def _in_order(change: SampleDelta) -> list[str]:
    """The busiest topics first."""
    return sorted(change.now.topics, key=lambda topic: (-change.appended(topic), topic))


def _row(change: SampleDelta, topic: str) -> list[object]:
    numbers = change.now.topics[topic]
    lag = change.now.slowest(topic)
    return [
        topic,
        f"{change.appended(topic):.0f}",
        numbers.head,
        numbers.records,
        out.size(numbers.bytes),
        "-" if numbers.ready is None else numbers.ready,
        "-" if numbers.in_flight is None else numbers.in_flight,
        "-" if lag is None else f"{lag.records} {lag.cursor}",
        "-" if lag is None else out.span(lag.seconds),
    ]


def _latency(bound_us: float | None) -> str:
    if bound_us is None:
        return "-"
    if math.isinf(bound_us):
        return "> 100 ms"
    return f"<= {bound_us / 1000:g} ms"


def _finite(bound: float | None) -> float | None:
    return None if bound is None or math.isinf(bound) else bound
