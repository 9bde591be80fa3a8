"""The main job from end to end: `make demo`.

A log in a directory of its own: written, read, followed live, deleted from, filled beyond its cap,
audited; then a second process writes to it, is killed in the middle, and everything that process
was told is safe is found again. Then the same as a server, see `demo_server`, and as streams and
tables of Spark, see `demo_pipeline`; Spark is installed behind the rest if it is not there yet, and
`make demo SPARK=0` does without it. Ends by itself and leaves nothing behind.
"""

import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import demo_server  # type: ignore[import-not-found]  # lies beside this file when it runs
from demo_install import Installation, wait_with_words  # type: ignore[import-not-found]  # so too

import topics
from topics import Tombstone
from topics.embedded import Log

LIVE_SECONDS = 1.0


def main() -> None:
    started = time.monotonic()
    with_spark = "--no-spark" not in sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="topics-demo-") as folder, ExitStack() as at_the_end:
        spark = Installation(Path(folder, "setup.log")) if with_spark else None
        if spark is not None:
            at_the_end.callback(spark.stop)
            if spark.is_needed():
                print("Spark is being installed behind this, over 600 MB to fetch, for the last")
                print("part of the demo; `make demo SPARK=0` leaves it out.", flush=True)
        directory = Path(folder, "data")
        write_and_read(directory)
        follow_live(directory)
        delete_and_evict(directory)
        kill_and_recover(directory)
        demo_server.main()
        if spark is not None:
            if spark.is_needed():
                wait_with_words(spark)
            run_pipeline()
    print(f"\nDone in {time.monotonic() - started:.1f} s. The demo's directory has been removed.")


def run_pipeline() -> None:
    """In a process of its own: this one began before there was a Spark to import."""
    pipeline = Path(__file__).resolve().parent / "demo_pipeline.py"
    sys.stdout.flush()
    ended = subprocess.run([sys.executable, str(pipeline)], check=False)
    if ended.returncode != 0:
        sys.exit(f"the last part of the demo failed with exit code {ended.returncode}")


def heading(text: str) -> None:
    print(f"\n{text}")


def say(text: str) -> None:
    print(f"  {text}")


# Writing and reading


def write_and_read(directory: Path) -> None:
    heading("Writing and reading")
    with topics.open(directory) as log:
        for durability in ("ephemeral", "memory", "disk", "fsync"):
            log.create(f"sensor.{durability}", durability=durability)
            rate = append_rate(log, f"sensor.{durability}")
            say(f"{durability:<9} took {rate:>7,.0f} records a second, {PROMISES[durability]}")
        orders = [
            {"data": {"order": n, "eur": 10 * n}, "tag": f"customer-{n % 3}"} for n in range(1, 10)
        ]
        log.create("orders", durability="fsync")
        ack = log.append("orders", orders, idempotency_key="first-batch")
        say(f"orders: records {ack.first_seq} to {ack.last_seq} are on disk, synced")
        again = log.append("orders", orders, idempotency_key="first-batch")
        answer = "known already, not stored twice" if again.deduped else "stored twice"
        say(f"the same batch sent again with the same key: {answer}")
        page = log.read("orders", after=6)
        say(f"read after 6: {[(record.seq, record.data['eur']) for record in page.records]}")


PROMISES = {
    "ephemeral": "kept in memory only",
    "memory": "safe once the process has handed them to the kernel",
    "disk": "safe from a killed process; from a power cut after a moment",
    "fsync": "safe from a power cut when append returns",
}


def append_rate(log: Log, topic: str) -> float:
    batch = [{"data": {"celsius": 20 + n % 5}} for n in range(100)]
    started = time.monotonic()
    for _ in range(20):
        log.append(topic, batch)
    return 20 * len(batch) / (time.monotonic() - started)


# Following


def follow_live(directory: Path) -> None:
    heading("Following live")
    with topics.open(directory) as log:
        seen: list[object] = []

        def follow() -> None:
            seen.extend(
                "a gap" if isinstance(event, Tombstone) else event.data["order"]
                for event in log.follow("orders", after=9, wait=LIVE_SECONDS)
            )

        follower = threading.Thread(target=follow)
        follower.start()
        for order in (10, 11, 12):
            log.append("orders", {"data": {"order": order, "eur": 5}, "tag": "customer-9"})
        follower.join()
    say(f"a thread that followed the topic saw orders {seen} as they were written")


# Removing


def delete_and_evict(directory: Path) -> None:
    heading("Removing, on purpose and not")
    with topics.open(directory) as log:
        removed = log.delete("orders", match="customer-1")
        page = log.read("orders", after=0)
        say(f"deleted customer-1 on request: {removed.deleted} records, silently and for good;")
        say(f"a reader sees seqs {[record.seq for record in page.records]} and no notice")
        log.create("ticks", durability="disk", cap_records=5)
        log.append("ticks", [{"data": n} for n in range(1, 13)])
        page = log.read("ticks", after=0)
        gap = page.tombstone
        assert gap is not None
        say(f"a topic capped at 5 records got 12: a reader is told that {gap.gap_from} to")
        say(f"{gap.gap_to} are lost to the cap, and then gets {[r.seq for r in page.records]}")
        for topic in ("orders", "ticks"):
            audit = log.audit(topic)
            say(
                f"audit of {topic}: {audit.written} written = {audit.live} live "
                f"+ {audit.deleted} deleted + {audit.lost_cap} lost to the cap"
            )


# Dying

WRITER = """
import sys, topics
log = topics.open(sys.argv[1])
for n in range(1_000_000):
    for durability in ("disk", "fsync"):
        ack = log.append("killed." + durability, {"data": n}, config={"durability": durability})
        print(durability, ack.last_seq, flush=True)
"""


def kill_and_recover(directory: Path) -> None:
    heading("Dying")
    acked = write_and_die(directory)
    say("another process wrote one record after the other and was killed with SIGKILL")
    with topics.open(directory) as log:
        for durability, promised in acked.items():
            found = count(log, f"killed.{durability}")
            assert found >= promised, f"{durability}: {promised} promised, {found} found"
            say(f"{durability:<9} it had been promised {promised} records, {found} are there")
        orders = count(log, "orders")
    say(f"and the {orders} orders from before are as they were")


def write_and_die(directory: Path) -> dict[str, int]:
    """Per durability the last seq the writer was told is safe."""
    acked: dict[str, int] = {}
    command = [sys.executable, "-c", WRITER, str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        for number, line in enumerate(writer.stdout):
            if number == 500:
                writer.send_signal(signal.SIGKILL)
            durability, _, seq = line.rstrip("\n").partition(" ")
            if seq and line.endswith("\n"):
                acked[durability] = int(seq)
    return acked


def count(log: Log, topic: str) -> int:
    """How many records can be read."""
    found = after = 0
    while True:
        page = log.read(topic, after=after, limit=1000)
        found += len(page.records)
        after = page.next_from_seq
        if page.caught_up:
            return found


if __name__ == "__main__":
    main()
