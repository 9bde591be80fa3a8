"""A program that uses `topics` and passes `mypy --strict`; `test_cli_wheel` also has wrong ones."""

from __future__ import annotations

from pathlib import Path

import topics
import topics.aio


def embedded(directory: Path) -> int:
    with topics.open(directory, wal_shards=1, cold_dir=directory / "cold") as log:
        log.create("orders", durability="fsync", cap_records=1000)
        changed: topics.Configured = log.configure("orders", ttl_ms=5, dry_run=True)
        log.append("orders", {"data": 1}, config={"durability": "disk"})
        log.append("orders", [{"data": {"id": n}, "tag": f"user-{n}"} for n in range(3)])
        rows: list[topics.Draft] = [{"data": 1, "tag": "user-7"}, {"data": None, "meta": {"v": 1}}]
        log.append("orders", rows)
        log.append("orders", rows[0])
        log.maintain()
        return changed.evicted.records + len(log.read("orders").records)


def in_memory() -> topics.Log:
    return topics.open(max_limit=5)


def either(where: str) -> list[topics.Record]:
    """A string may be a directory or an address: what both can do passes."""
    with topics.open(where) as log:
        page: topics.Page = log.read("orders", after=5, limit=10)
        for item in log.follow("orders", wait=0.0):
            if isinstance(item, topics.Tombstone):
                print(item.gap_from)
            else:
                print(item.seq, item.data)
        return list(page.records)


def remote(url: str) -> topics.RemoteLog:
    return topics.open(url, token=None, timeout=5)


def whole_programs(log: topics.Log | topics.RemoteLog) -> None:
    def handle(job: topics.Job) -> None:
        if job.data is None:
            raise topics.Reject("no data")

    log.create("mails", type="queue", max_deliveries=3)
    worker: topics.Worker = log.worker("mails", handle, concurrency=2)
    worker.stop()
    with log.producer("orders", linger_ms=1, create=True) as producer:
        producer.send({"id": 1}, tag="user-7")
    consumer: topics.Consumer = log.consumer("orders", name="billing", start="latest")
    consumer.seek(1)
    try:
        log.state("absent")
    except topics.errors.TopicNotFound as error:
        print(error.code)


async def awaited(url: str) -> topics.TopicState:
    async with topics.aio.open(url, token="key", retries=2) as log:
        await log.create("orders", durability="memory")
        await log.append("orders", {"data": 1})
        async for item in log.follow("orders", wait=1.0):
            print(item)
        return await log.state("orders")
