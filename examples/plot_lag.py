"""Throughput, lag and loss of a stream over time, as a picture: `plot_lag.py OUT.png [BURSTS]`.

A topic that keeps 8 000 records gets bursts of 10 000, and a stream reads at most 3 000 a batch. So
it falls behind, and what the cap takes before it was read shows up as `lost` rows in the very batch
that would have held the records. Everything drawn here comes from the stream's rows and from the
named cursor that it reports to on the server.
"""

import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib as mpl

sys.path.insert(0, str(Path(__file__).resolve().parent))
from demo_server import Server, running  # type: ignore[import-not-found]  # lies beside this file

from topics.spark import session

mpl.use("Agg")  # no window: a file is all that is wanted

from matplotlib import pyplot as plt

TOPIC, CURSOR = "readings", "plot"
CAP, BURST, PER_BATCH = 8_000, 10_000, 3_000
SAMPLE_S = 0.2
PAUSE_S = 2.0


@dataclass
class Story:
    """What happened, as points in time since the start."""

    began: float = field(default_factory=time.monotonic)
    written: list[tuple[float, int]] = field(default_factory=list)
    batches: list[tuple[float, int, int]] = field(default_factory=list)
    """When a batch ended, its records, and how many were lost in its range."""
    lag: list[tuple[float, int]] = field(default_factory=list)

    def now(self) -> float:
        return time.monotonic() - self.began

    def begin(self) -> None:
        self.began = time.monotonic()
        self.batches.clear()


def main(out: Path, bursts: int) -> Story:
    with tempfile.TemporaryDirectory(prefix="topics-plot-") as folder, running() as server:
        story = watch(server, Path(folder), bursts)
    draw(story, out)
    return story


def watch(server: Server, folder: Path, bursts: int) -> Story:
    """Write in bursts, read in bites, and note what happens."""
    config = {"durability": "disk", "cap_records": CAP}
    server.call("PUT", f"/v0/topics/{TOPIC}", config)
    story = Story()
    spark = session("local[2]")
    rows = (
        spark.readStream.format("topics")
        .option("url", f"http://{server.address}")
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerTrigger", PER_BATCH)
        .option("cursor", CURSOR)
        .load()
    )

    def note(batch: Any, _: int) -> None:  # noqa: ANN401 - a DataFrame
        # One query for both: each would read the topic again, and the cap does not wait.
        counted = batch.selectExpr("kind", "coalesce(last_seq, seq) - seq + 1 AS seqs")
        seqs = {row["kind"]: row[1] for row in counted.groupBy("kind").sum("seqs").collect()}
        story.batches.append((story.now(), seqs.get("data", 0), seqs.get("lost", 0)))

    query = (
        rows.writeStream.foreachBatch(note)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="500 milliseconds")
        .start()
    )
    try:
        # The first batch takes seconds, because everything starts; it is not part of the story.
        server.call("POST", f"/v0/topics/{TOPIC}", {"records": [{"data": 0}]})
        query.processAllAvailable()
        story.begin()
        with sampling(server, story):
            for _ in range(bursts):
                records = [{"data": n} for n in range(BURST)]
                server.call("POST", f"/v0/topics/{TOPIC}", {"records": records})
                story.written.append((story.now(), BURST))
                time.sleep(PAUSE_S)
            query.processAllAvailable()
            time.sleep(2 * SAMPLE_S)
    finally:
        query.stop()
    return story


@contextmanager
def sampling(server: Server, story: Story) -> Iterator[None]:
    """Ask the server now and then how far behind the stream is."""
    ended = threading.Event()

    def ask() -> None:
        while not ended.wait(SAMPLE_S):
            status, cursor = server.call("GET", f"/v0/topics/{TOPIC}/cursors/{CURSOR}")
            if status == 200:
                story.lag.append((story.now(), cursor["lag_records"]))

    asker = threading.Thread(target=ask, daemon=True)
    asker.start()
    try:
        yield
    finally:
        ended.set()
        asker.join()


def draw(story: Story, out: Path) -> None:
    figure, (rate, lag, lost) = plt.subplots(
        3, 1, sharex=True, figsize=(8, 7), layout="constrained"
    )
    figure.suptitle(f"Bursts of {BURST:,} into a topic that keeps {CAP:,}")
    at, counts = [t for t, _ in story.written], [n for _, n in story.written]
    rate.bar(at, counts, width=0.15, color="tab:gray", label="written at once")
    at, counts = [t for t, _, _ in story.batches], [n for _, n, _ in story.batches]
    rate.bar(at, counts, width=0.15, color="tab:blue", label="read in a batch")
    rate.set_ylabel("records")
    rate.legend(loc="upper right")
    lag.step([t for t, _ in story.lag], [n for _, n in story.lag], where="post", color="tab:orange")
    lag.set_ylabel("lag (records)")
    total, steps = 0, []
    for _, _, gone in story.batches:
        total += gone
        steps.append(total)
    lost.step(at, steps, where="post", color="tab:red")
    lost.set_ylabel("lost, in total")
    lost.set_xlabel("seconds")
    for panel in (rate, lag, lost):
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
    figure.savefig(out, dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(f"usage: {sys.argv[0]} OUT.png [BURSTS]")
    told = main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) == 3 else 6)
    read = sum(count for _, count, _ in told.batches)
    gone = sum(count for _, _, count in told.batches)
    print(f"{sum(count for _, count in told.written):,} written = {read:,} read + {gone:,} lost")
