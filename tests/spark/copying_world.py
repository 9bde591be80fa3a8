"""A server behind doors, a topic to feed, and the places that copies of it go to."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx
from deltalake import DeltaTable
from tests.blackbox.conftest import ServerProcess
from tests.spark import copying_driver
from tests.spark.drivers import Driver, running
from tests.spark.proxy import Proxy

from topics.spark.lake.parquet import staged_stem
from topics.spark.lake.place import TablePath
from topics.spark.lake.table import LakeTable
from topics.spark.lake.typed import TypedAs

ROWS = 400
"""Records that are fed at a time; a batch each."""
SOURCE = "orders"


class Copy:
    """Two topics and a table. The table has a door of its own: what comes through it is sent by a
    commit that is in the table's log already."""

    def __init__(self, name: str, server: ServerProcess, work: Path) -> None:
        self.name = name
        self.topics, self.table = f"{name}-topics", f"{name}-table"
        """The queries."""
        self.place = TablePath.of(str(work / f"lake-{name}"))
        self.proxy, self.table_proxy = Proxy(server.address), Proxy(server.address)
        self._server = server
        self._work = work

    @property
    def asked(self) -> copying_driver.Copy:
        return {
            "name": self.name,
            "url": self.proxy.url,
            "table": self.place.path,
            "table_url": self.table_proxy.url,
        }

    def copied(self) -> list[int]:
        """The numbers in both topics, as often as they are there."""
        found: list[int] = []
        for topic in (f"{self.name}.0", f"{self.name}.1"):
            found += [json.loads(data)["n"] for data in self._datas(topic)]
        return found

    def _datas(self, topic: str) -> list[str]:
        url = f"{self._server.url}/v0/topics/{topic}/diff"
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
        rows = DeltaTable(self.place.path).to_pyarrow_table()
        numbers: list[int] = [json.loads(data)["n"] for data in rows.column("data").to_pylist()]
        if "n" in rows.schema.names:
            assert rows.column("n").to_pylist() == numbers
            shown = rows.column("fed").to_pylist()
            assert [fed[f"from_{n // ROWS * ROWS}"] for fed, n in zip(shown, numbers, strict=True)]
        return numbers

    def make_typed(self) -> None:
        """Its table has the fields of data as columns; a table is filled as it was begun."""
        typed = TypedAs(None, keep_data=True)
        LakeTable.of_topic(self.place, SOURCE, origin=self.table_proxy.url, typed=typed)

    def staged_files(self, batch: int) -> list[Path]:
        metadata = self._work / f"checkpoint-{self.table}" / "metadata"
        query = json.loads(metadata.read_text())["id"]
        return list(Path(self.place.path).glob(f"{staged_stem(query, batch)}*"))

    def check(self, *, in_topics: int, in_table: int) -> None:
        """So many of the records are there, and each is there once."""
        for found, wanted in ((self.copied(), in_topics), (self.tabled(), in_table)):
            assert len(found) == wanted
            assert Counter(found) == Counter(range(wanted))


class World:
    """The server, its source and the copies, as long as the `with` block."""

    def __init__(self, server: ServerProcess, work: Path, *names: str) -> None:
        self.server = server
        self.work = work
        self.copies = [Copy(name, server, work) for name in names]
        self._fed = 0
        self._doors = ExitStack()

    def __enter__(self) -> Self:
        for copy in self.copies:
            self._doors.enter_context(copy.proxy)
            self._doors.enter_context(copy.table_proxy)
        self.copies[0].make_typed()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._doors.close()

    def feed(self) -> None:
        """Write the records of one more batch, with a field that those before it did not have."""
        fed = {f"from_{self._fed}": True}
        records = [
            {"data": {"n": self._fed + n, "fed": fed}, "tag": f"t{n % 7}"} for n in range(ROWS)
        ]
        url = f"{self.server.url}/v0/topics/{SOURCE}"
        httpx.post(url, json={"records": records}, timeout=60).raise_for_status()
        self._fed += ROWS

    def asked(self, *, partitions: int, is_endless: bool = False) -> copying_driver.Asked:
        return {
            "source": SOURCE,
            "copies": [copy.asked for copy in self.copies],
            "partitions": partitions,
            "rows_per_trigger": ROWS,
            "is_endless": is_endless,
            "work": str(self.work),
        }

    def driver(self, asked: copying_driver.Asked, **more: object) -> AbstractContextManager[Driver]:
        return running(self.work, asked=asked, data_dir=str(self.server.data_dir), **more)

    def restart_server(self) -> None:
        """Kill it and have it back, behind the same doors."""
        self.server.restart()
        for copy in self.copies:
            copy.proxy.target = copy.table_proxy.target = self.server.address
