"""The last part of `make demo`: the same topics as streams and tables of Spark.

Orders go into a topic. A flow of Spark SQL writes totals by the minute into another topic, exactly
once. The orders become a Delta table; one customer is deleted in the topic, the delete is carried
into the table, and a receipt proves that no file holds that customer any more. DuckDB reads the
same rows. Runs in a process of its own, because Spark was not installed when the demo began.
"""

import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TextIO, TypeVar

from demo_server import Server, running, say, show  # type: ignore[import-not-found]  # beside it

from topics import cli
from topics.spark import java, session
from topics.spark.jobs.session import chatter_to, tail

T = TypeVar("T")
ORDERS = 20_000
MINUTES = 5
CUSTOMERS = 50
LEAVING = "customer-7"
MORNING = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
FLOW = Path(__file__).resolve().parent / "flows" / "totals.yaml"
NOTICE_EVERY_S = 5.0


def main() -> int:
    show("The same topics as streams and tables, on Spark")
    with tempfile.TemporaryDirectory(prefix="topics-demo-") as made:
        folder = Path(made)
        log = folder / "spark.log"
        os.environ["XDG_STATE_HOME"] = str(folder / "state")
        try:
            with started_spark(folder, log), running() as server:
                os.environ["TOPICS_URL"] = f"http://{server.address}"
                os.chdir(folder)
                follow_the_orders(server, folder)
        except Exception:
            print(f"\nWhat Spark said last:\n{tail(log)}", file=sys.stderr)
            raise
    return 0


def follow_the_orders(server: Server, folder: Path) -> None:
    orders = place_orders(server)
    total_by_the_minute(server, orders, folder)
    table = folder / "lake" / "orders"
    keep_as_a_table(table, orders)
    delete_a_customer(server, table)
    read_with_duckdb(server, table)


# Spark


@contextmanager
def started_spark(folder: Path, log: Path) -> Iterator[None]:
    """A session that everything below uses; what its JVM says goes to a file."""
    conf = {
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
        "spark.sql.shuffle.partitions": 2,
        "spark.local.dir": folder / "scratch",
        "spark.sql.warehouse.dir": folder / "warehouse",
    }
    found = java.search().require()  # before the start, which settles on one
    began = time.monotonic()
    with contextlib.ExitStack() as until_started:
        # Standard output points to the log while Spark starts: the words need one of their own.
        out = until_started.enter_context(os.fdopen(os.dup(1), "w"))
        until_started.enter_context(waiting("Spark is starting", out))
        until_started.enter_context(chatter_to(log))
        spark = session("local[2]", conf=conf)
    took = time.monotonic() - began
    say(f"Spark {spark.version} started in {took:.0f} s on Java {found.shown_version},")
    say(f"from {found.source}; what its JVM says goes to a file and is shown if something fails")
    try:
        yield
    finally:
        spark.stop()


@contextmanager
def waiting(what: str, out: TextIO | None = None) -> Iterator[None]:
    """Say now and then that something still goes on: on a terminal always on the same line."""
    # Not sys.stdout, which `command` points elsewhere while it runs.
    target = out or sys.__stdout__
    assert target is not None
    before, after = ("\r", "") if target.isatty() else ("", "\n")
    ended = threading.Event()
    began = time.monotonic()

    def tell() -> None:
        while not ended.wait(NOTICE_EVERY_S):
            seconds = time.monotonic() - began
            print(f"{before}  {what}: {seconds:.0f} s", end=after, file=target, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
        if before:
            print(f"\r{' ' * (len(what) + 12)}\r", end="", file=target, flush=True)


def command(*words: object) -> str:
    """Run a `topics` command in this process, which has Spark already; returns what it printed."""
    printed, complaints = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaints):
        code = cli.run([str(word) for word in words])
    if code != 0:
        raise RuntimeError(f"topics {words} ended with {code}\n{complaints.getvalue()}")
    return printed.getvalue()


def timed(what: str, work: Callable[[], T]) -> tuple[T, float]:
    """Do something that may take a while, with a word now and then."""
    began = time.monotonic()
    with waiting(what):
        done = work()
    return done, time.monotonic() - began


# The steps


def place_orders(server: Server) -> list[dict[str, Any]]:
    orders = [an_order(number) for number in range(ORDERS)]
    server.call("PUT", "/v0/topics/orders", {"durability": "fsync"})
    for first in range(0, ORDERS, 5000):
        records = [
            {"data": order, "tag": order["customer"]} for order in orders[first : first + 5000]
        ]
        server.call("POST", "/v0/topics/orders", {"records": records})
    say(f"{ORDERS:,} orders of {CUSTOMERS} customers are in the topic orders; each carries the")
    say(f"time it was placed, between 09:00 and 09:0{MINUTES} on a morning in March")
    return orders


def an_order(number: int) -> dict[str, Any]:
    placed = MORNING + timedelta(minutes=MINUTES) * number / ORDERS
    return {
        "id": number + 1,
        "customer": f"customer-{number % CUSTOMERS}",
        "cents": 100 + number * 37 % 20_000,
        "at": placed.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


def total_by_the_minute(server: Server, orders: list[dict[str, Any]], folder: Path) -> None:
    flow = folder / FLOW.name
    shutil.copy(FLOW, flow)
    run = ("flow", "run", flow, "--once", "--json")
    _, took = timed("the flow runs", lambda: command(*run))
    closed = totals(server)
    say(f"a flow of Spark SQL wrote the totals of {len(closed)} minutes back in {took:.0f} s; the")
    say("last minute is still open: Spark waits for an order that is later than its end")
    later = an_order(0) | {"id": ORDERS + 1, "at": "2026-03-01T10:00:00.000Z"}
    server.call("POST", "/v0/topics/orders", {"records": [{"data": later, "tag": "customer-0"}]})
    timed("the flow runs again", lambda: command(*run))
    command(*run)  # once more: there is nothing left to do, and nothing may be written twice
    found = totals(server)
    expected = by_minute(orders)
    assert found == expected, f"{found} instead of {expected}"
    say("one order placed at 10:00 closes it (its own minute stays open, so it is in no total):")
    for minute, (count, cents) in found.items():
        say(f"  {minute[11:16]}  {count:>6,} orders  {cents / 100:>12,.2f} EUR")
    say(f"together {sum(count for count, _ in found.values()):,} orders, the same to the cent as")
    say("what was put in; the flow ran three times and no minute is there twice")


def totals(server: Server) -> dict[str, tuple[int, int]]:
    """What the topic totals says, by minute; a minute that is there twice is an error."""
    status, page = server.call("POST", "/v0/topics/totals/diff", {"from_seq": 0})
    rows = [record["data"] for record in page["records"]] if status == 200 else []
    doubled = [minute for minute, n in Counter(row["minute"] for row in rows).items() if n > 1]
    assert not doubled, f"these minutes were written twice: {doubled}"
    return {row["minute"]: (row["orders"], row["cents"]) for row in rows}


def by_minute(orders: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """The same from the input, without Spark."""
    sums: dict[str, tuple[int, int]] = {}
    for order in orders:
        minute = order["at"][:16] + ":00.000000Z"
        count, cents = sums.get(minute, (0, 0))
        sums[minute] = count + 1, cents + order["cents"]
    return sums


def keep_as_a_table(table: Path, orders: list[dict[str, Any]]) -> None:
    _, took = timed("the table is made", lambda: command("lake", "sync", "orders", table, "--once"))
    rows = len(orders) + 1
    assert count_rows(table) == rows, f"{count_rows(table)} rows instead of {rows}"
    say(f"topics lake sync made the topic a Delta table of {rows:,} rows in {took:.0f} s")


def delete_a_customer(server: Server, table: Path) -> None:
    _, answer = server.call("POST", "/v0/topics/orders/delete", {"match": LEAVING})
    say(f"{LEAVING} wants to be forgotten: {answer['deleted']} orders deleted in the topic;")
    sync = ("lake", "sync", "orders", table, "--once")
    timed("the delete reaches the table", lambda: command(*sync))
    receipt, needle = table.parent / "receipt.json", table.parent / "needle"
    needle.write_text(f"{LEAVING}\n")
    maintain = ("lake", "maintain", table, "--retain", "0h", "--receipt", receipt)
    timed("every file is searched", lambda: command(*maintain, "--needle-file", needle))
    proof = json.loads(receipt.read_text())
    assert proof["found"] == 0, proof
    scanned = proof["scanned"]
    say("the next sync took them out of the table, and topics lake maintain their bytes from disk.")
    say(
        f"The receipt: {scanned['files']} files with {scanned['decoded_rows']:,} rows were searched"
    )
    say(f"for {LEAVING} and its records, found {proof['found']} times. It also names where copies")
    copies = ", ".join(dict.fromkeys(str(kept["what"]) for kept in proof["kept_elsewhere"]))
    say(f"may still be: {copies}")


def read_with_duckdb(server: Server, table: Path) -> None:
    import duckdb  # noqa: PLC0415 - all of these come with Spark
    from deltalake import DeltaTable  # noqa: PLC0415

    orders = DeltaTable(str(table)).to_pyarrow_dataset()
    query = "SELECT count(*), sum((data->>'cents')::BIGINT) FROM orders"
    with duckdb.connect() as connection:
        connection.register("orders", orders)
        count, cents = connection.execute(query).fetchall()[0]
    live = [record["data"]["cents"] for record in every_record(server, "orders")]
    assert (count, cents) == (len(live), sum(live)), (count, cents, len(live), sum(live))
    say(f"DuckDB reads the table: {count:,} orders, {cents / 100:,.2f} EUR; the topic has the same")


def count_rows(table: Path) -> int:
    from deltalake import DeltaTable  # noqa: PLC0415

    return int(DeltaTable(str(table)).to_pyarrow_dataset().count_rows())


def every_record(server: Server, topic: str) -> Iterator[dict[str, Any]]:
    after = 0
    while True:
        body = {"from_seq": after, "limit": 1000}
        page = server.call("POST", f"/v0/topics/{topic}/diff", body)[1]
        yield from page["records"]
        after = page["next_from_seq"]
        if page["caught_up"]:
            return


if __name__ == "__main__":
    sys.exit(main())
