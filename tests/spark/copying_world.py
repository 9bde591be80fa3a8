"""A server behind two doors, a topic to feed, and the places a copying driver takes it to."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
from deltalake import DeltaTable
from tests.blackbox.conftest import ServerProcess
from tests.spark.drivers import Driver, running
from tests.spark.proxy import Proxy

from topics.spark.lake.arriving import staged_stem

ROWS = 400
"""Records that are fed at a time; a batch each."""
SOURCE, COPY = "orders", "copies"
BOTH = ("topics", "table")


class World:
    """The table has a door of its own: what comes through it is sent by a commit that is in the
    table's log already."""

    def __init__(self, server: ServerProcess, work: Path, proxy: Proxy, table_proxy: Proxy) -> None:
        self.server = server
        self.work = work
        self.proxy = proxy
        self.table_proxy = table_proxy
        self.table = work / "lake"
        self.fed = 0

    def feed(self) -> None:
        """Write the records of one more batch."""
        records = [{"data": {"n": self.fed + n}, "tag": f"t{n % 7}"} for n in range(ROWS)]
        url = f"{self.server.url}/v0/topics/{SOURCE}"
        httpx.post(url, json={"records": records}, timeout=60).raise_for_status()
        self.fed += ROWS

    def driver(
        self, *, partitions: int, is_endless: bool = True, **more: object
    ) -> AbstractContextManager[Driver]:
        return running(
            self.work,
            url=self.proxy.url,
            source=SOURCE,
            to=COPY,
            partitions=partitions,
            rows_per_trigger=ROWS,
            table=str(self.table),
            table_url=self.table_proxy.url,
            is_endless=is_endless,
            data_dir=str(self.server.data_dir),
            **more,
        )

    def restart_server(self) -> None:
        self.server.restart()
        self.proxy.target = self.table_proxy.target = self.server.address

    # What is there

    def copied(self) -> list[int]:
        """The numbers in both topics, as often as they are there."""
        found: list[int] = []
        for topic in (f"{COPY}.0", f"{COPY}.1"):
            found += [json.loads(data)["n"] for data in self._datas(topic)]
        return found

    def _datas(self, topic: str) -> list[str]:
        url = f"{self.server.url}/v0/topics/{topic}/diff"
        datas: list[str] = []
        cursor = 0
        while True:
            answer = httpx.post(url, json={"from_seq": cursor, "limit": 1000}, timeout=60)
            if answer.status_code == 404:
                return datas
            page = answer.raise_for_status().json()
            assert page["tombstone"] is None
            datas += [json.dumps(record["data"]) for record in page["records"]]
            cursor = page["next_from_seq"]
            if page["caught_up"]:
                return datas

    def tabled(self) -> list[int]:
        """The numbers in the table, as often as they are there."""
        rows = DeltaTable(self.table).to_pyarrow_table(columns=["data"])
        return [json.loads(data)["n"] for data in rows.column("data").to_pylist()]

    def staged_files(self, batch: int) -> list[Path]:
        query = json.loads((self.work / "checkpoint-table" / "metadata").read_text())["id"]
        return list(self.table.glob(f"{staged_stem(query, batch)}*"))

    def check(self, *, rows: int) -> None:
        """Every record so far is there, and there once."""
        for found in (self.copied(), self.tabled()):
            assert len(found) == rows
            assert Counter(found) == Counter(range(rows))

    def check_what_spark_counted(self, *, rows: int) -> None:
        """Rows and distinct rows, as the last driver saw them in a batch read of the copies."""
        for way in ("by_url", "by_path"):
            assert json.loads((self.work / way).read_text()) == [rows, rows], way
