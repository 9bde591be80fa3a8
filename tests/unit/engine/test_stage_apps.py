"""Whose a staging app is, and what one key may take of the room for stages."""

from __future__ import annotations

from typing import Any

import pytest

from topics.embedded import Log
from topics.engine.effects import run
from topics.engine.recovery.opening import Opening, open_engine
from topics.engine.settings import EngineSettings
from topics.engine.stages.apps import ANYBODY, Caller, share_of
from topics.engine.stages.rows import stage_rows_of
from topics.engine.upkeep import snapshots
from topics.errors import Forbidden, InvalidRequest, NotFound, StaleEpoch, Throttled
from topics.testing import ManualClock, SimDisk
from topics.values import StageCommit, Staged

TTL_MS, APP_TTL_MS = 1000, 5000


class Server:
    """An engine with keys, each named by one letter; `keys` are those it has today."""

    def __init__(self, disk: SimDisk | None = None, **settings: Any) -> None:  # noqa: ANN401
        self.clock = ManualClock()
        self.keys = "ab"
        self._settings = EngineSettings(
            cache_bytes=64 << 10, stage_ttl_ms=TTL_MS, stage_app_ttl_ms=APP_TTL_MS, **settings
        )
        self._disk = disk or SimDisk()
        self.open()

    def open(self) -> None:
        opening = Opening(self._settings, self.clock)
        self.engine = open_engine(self._disk.mount(), "/data", opening)
        self.log = Log(self.engine)

    def kill(self) -> None:
        self._disk.kill()
        self.open()

    def by(self, key: str, *prefixes: str) -> Caller:
        return Caller(
            key.encode() * 16,
            allows=lambda name: not prefixes or name.startswith(prefixes),
            is_in_use=lambda print_: print_.decode()[0] in self.keys,
            has_share=True,
        )

    def stage(self, who: Caller, path: str, *rows: tuple[str, object], rest: str = "0/0") -> Staged:
        app, epoch = path.split("/")
        part, attempt = map(int, rest.split("/"))
        sent = stage_rows_of([{"topic": topic, "data": data} for topic, data in rows])
        return run(self.engine.stage(app, int(epoch), part, attempt, sent, caller=who))

    def commit(self, who: Caller, path: str, *parts: tuple[int, int]) -> StageCommit:
        app, epoch = path.split("/")
        return run(self.engine.commit(app, int(epoch), parts, caller=who))


@pytest.fixture
def server() -> Server:
    return Server()


def test_another_key_cannot_replace_a_stage_or_commit_or_use_up_epochs(server: Server) -> None:
    owner, other = server.by("a"), server.by("b")
    server.stage(owner, "etl/1", ("t", 1))
    for attack in (
        lambda: server.stage(other, "etl/1"),
        lambda: server.commit(other, "etl/1"),
        lambda: server.commit(other, f"etl/{2**64 - 1}"),
    ):
        with pytest.raises(Forbidden) as refused:
            attack()
        assert refused.value.detail == {"app": "etl"}
    assert not server.commit(owner, "etl/1", (0, 0)).deduped
    assert [record.data for record in server.log.read("t").records] == [1]
    with pytest.raises(Forbidden):
        server.commit(other, "etl/1", (0, 0))


@pytest.mark.parametrize("begins", ["stage", "commit"])
@pytest.mark.parametrize("after", ["kill", "checkpoint"])
def test_the_owner_survives_a_restart(server: Server, begins: str, after: str) -> None:
    if begins == "stage":
        server.stage(server.by("a"), "etl/1", ("t", 1))
    else:
        server.commit(server.by("a"), "etl/1")
    if after == "checkpoint":
        server.engine.checkpoint()
        server.engine.checkpoint()
    server.kill()
    with pytest.raises(Forbidden):
        server.commit(server.by("b"), "etl/2")
    server.commit(server.by("a"), "etl/2")


def test_an_app_is_free_again_once_it_is_forgotten(server: Server) -> None:
    server.stage(server.by("a"), "staged/1", ("t", 1))
    server.commit(server.by("a"), "committed/1")
    server.clock.advance(TTL_MS + 1)
    server.engine.maintain()
    server.stage(server.by("b"), "staged/1", ("t", 1))
    with pytest.raises(Forbidden):
        server.commit(server.by("b"), "committed/2")
    server.engine.checkpoint()
    server.engine.checkpoint()
    server.clock.advance(APP_TTL_MS + 1)
    server.engine.maintain()
    server.commit(server.by("b"), "committed/1")


def test_a_call_that_failed_leaves_no_owner(server: Server) -> None:
    with pytest.raises(NotFound):
        server.commit(server.by("a"), "etl/1", (0, 0))
    server.stage(server.by("b"), "etl/1")


def test_an_app_without_an_owner_belongs_to_the_first_key_that_uses_it(server: Server) -> None:
    server.commit(ANYBODY, "etl/1")
    server.stage(ANYBODY, "etl/2", ("t", 1))
    server.kill()
    server.commit(server.by("a"), "etl/2", (0, 0))
    with pytest.raises(Forbidden):
        server.commit(server.by("b"), "etl/3")
    server.commit(ANYBODY, "etl/3")  # the keys are off: nobody is told apart
    with pytest.raises(Forbidden):
        server.commit(server.by("b"), "etl/4")


def test_the_successor_of_a_removed_key_goes_on_where_it_ended(server: Server) -> None:
    server.commit(server.by("a"), "etl/6")
    server.stage(server.by("a"), "etl/7", ("t", 1))
    server.keys = "bc"
    server.clock.advance(1)
    with pytest.raises(NotFound):  # what another key has staged is not what this one commits
        server.commit(server.by("b"), "etl/7", (0, 0))
    server.stage(server.by("b"), "etl/7", ("t", 2))
    server.commit(server.by("b"), "etl/7", (0, 0))
    assert [record.data for record in server.log.read("t").records] == [2]
    with pytest.raises(Forbidden):
        server.commit(server.by("c"), "etl/8")


def test_a_successor_is_in_the_next_snapshot_whatever_its_call_came_to(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "SMALL_BYTES", 0)  # only what changed is written
    server.commit(server.by("a"), "etl/6")
    for _ in range(2):
        server.log.append("t", {"data": 1})
        server.engine.checkpoint()
    server.keys = "bc"
    with pytest.raises(StaleEpoch):
        server.commit(server.by("b"), "etl/5")
    server.engine.checkpoint()
    server.kill()
    with pytest.raises(Forbidden):
        server.commit(server.by("c"), "etl/7")


def test_a_stage_of_a_removed_key_does_not_undo_its_succession(server: Server) -> None:
    server.commit(server.by("a"), "etl/6")
    server.stage(server.by("a"), "etl/9", ("t", 1))
    server.keys = "bc"
    server.clock.advance(1)
    server.commit(server.by("b"), "etl/7")
    server.kill()
    with pytest.raises(Forbidden):
        server.commit(server.by("c"), "etl/8")
    server.stage(server.by("b"), "etl/9", ("t", 2))


def test_a_key_with_prefixes_uses_apps_that_begin_with_one_of_them(server: Server) -> None:
    limited = server.by("a", "mine.", "shared.")
    server.stage(limited, "mine.etl/1", ("shared.t", 1))
    with pytest.raises(Forbidden) as refused:
        server.stage(limited, "etl/1", ("mine.t", 1))
    assert refused.value.detail == {"app": "etl"}
    with pytest.raises(Forbidden) as refused:
        server.stage(limited, "mine.etl/1", ("mine.t", 1), ("other", 1))
    assert refused.value.detail == {"topic": "other"}
    assert server.commit(limited, "mine.etl/1", (0, 0)).topics["shared.t"].count == 1


def test_a_key_keeps_what_it_owns_when_it_is_limited_to_prefixes(server: Server) -> None:
    server.stage(server.by("a"), "etl/1", ("mine.t", 1))
    server.commit(server.by("a", "mine."), "etl/1", (0, 0))


def test_a_key_with_prefixes_takes_over_only_what_wrote_to_its_topics(server: Server) -> None:
    for app, topic in (("ours", "mine.t"), ("theirs", "other")):
        server.stage(ANYBODY, f"{app}/1", (topic, 1))
        server.commit(ANYBODY, f"{app}/1", (0, 0))
    server.commit(ANYBODY, "idle/1")
    limited = server.by("a", "mine.")
    server.stage(limited, "ours/2", ("mine.t", 1))
    for app in ("theirs", "idle"):
        with pytest.raises(Forbidden):
            server.stage(limited, f"{app}/2", ("mine.t", 1))


# Epochs


def test_an_epoch_lies_at_most_2_to_the_32_beyond_the_last_one(server: Server) -> None:
    who = server.by("a")
    server.commit(who, f"etl/{2**40}")  # any number is fine for the first one
    far = f"etl/{2**40 + 2**32 + 1}"
    for call in (lambda: server.stage(who, far), lambda: server.commit(who, far)):
        with pytest.raises(InvalidRequest, match="more than 2\\^32 beyond"):
            call()
    server.commit(who, f"etl/{2**40 + 2**32}")
    with pytest.raises(StaleEpoch):
        server.commit(who, f"etl/{2**40}")


# Room


def limit_of(refused: pytest.ExceptionInfo[Throttled]) -> tuple[object, object]:
    detail = refused.value.detail or {}
    return detail["limit"], detail["max"]


def test_tags_nodes_and_topics_count_against_the_limit_on_bytes() -> None:
    rows = [{"topic": "t" * 200, "data": 1, "tag": "g" * 200, "node": "n" * 100}] * 1000
    server = Server(max_stage_bytes=5000)
    for part in (0, 1):
        run(server.engine.stage("etl", 1, part, 0, stage_rows_of(rows)))
    with pytest.raises(Throttled) as refused:
        run(server.engine.stage("etl", 1, 2, 0, stage_rows_of(rows)))
    assert limit_of(refused) == ("max_stage_bytes", 5000)
    server.kill()
    assert server.engine.staging.taken == (2, 2000, 2 * 126 * 4096)


def test_empty_stages_count_too() -> None:
    server = Server(max_stages=2)
    for part in "01":
        server.stage(ANYBODY, "etl/1", rest=f"{part}/0")
    server.stage(ANYBODY, "etl/1", rest="1/0")  # in place of the other
    with pytest.raises(Throttled) as refused:
        server.stage(ANYBODY, "etl/1", rest="2/0")
    assert limit_of(refused) == ("max_stages", 2)
    server.commit(ANYBODY, "etl/1")
    server.stage(ANYBODY, "etl/2", rest="2/0")


def test_one_key_takes_a_quarter_of_the_room_and_others_go_on() -> None:
    server = Server(max_stages=8, max_stage_bytes=100)
    one, other = server.by("a"), server.by("b")
    server.stage(one, "a/1", ("t", "x" * 60))
    with pytest.raises(Throttled) as refused:
        server.stage(one, "more/1", ("t", "x" * 60))
    assert limit_of(refused) == ("max_stage_bytes_per_key", 100)
    server.stage(one, "a/1", ("t", "x" * 90))  # in place of its own
    server.stage(one, "a/1", rest="1/0")
    with pytest.raises(Throttled) as refused:
        server.stage(one, "a/1", rest="2/0")
    assert limit_of(refused) == ("max_stages_per_key", 2)
    server.stage(other, "b/1", ("t", "x" * 60))
    server.keys = "b"
    server.stage(other, "a/1")  # in place of what a removed key has staged
    assert server.engine.staging.taken.nbytes == 62


def test_what_one_app_has_left_behind_does_not_keep_others_from_staging() -> None:
    server = Server(max_stage_bytes=100)
    for app in ("dead", "b", "c", "d"):
        server.stage(ANYBODY, f"{app}/1", ("t", "x" * 90))
        with pytest.raises(Throttled) as refused:
            server.stage(ANYBODY, f"{app}/2", ("t", "x" * 90))
        assert limit_of(refused) == ("max_stage_bytes", 100)
    with pytest.raises(Throttled) as refused:
        server.stage(ANYBODY, "e/1", ("t", "x" * 90))
    assert limit_of(refused) == ("max_stage_bytes_of_all", 400)
    assert run(server.engine.staging.drop("dead")).dropped == 1
    server.stage(ANYBODY, "e/1", ("t", "x" * 90))


def test_a_share_is_a_quarter_and_at_least_one() -> None:
    assert [share_of(limit) for limit in (0, 1, 7, 8)] == [0, 1, 1, 2]


def test_remembered_apps_are_limited_in_all_and_per_key() -> None:
    server = Server(max_stage_apps=8)
    one, other = server.by("a"), server.by("b")
    server.commit(one, "a1/1")
    server.stage(one, "a2/1")
    with pytest.raises(Throttled) as refused:
        server.commit(one, "a3/1")
    assert limit_of(refused) == ("max_stage_apps_per_key", 2)
    server.commit(one, "a1/2")
    for n in range(6):
        server.commit(ANYBODY, f"free{n}/1")
    with pytest.raises(Throttled) as refused:
        server.commit(other, "b/1")
    assert limit_of(refused) == ("max_stage_apps", 8)
    server.clock.advance(TTL_MS + 1)
    server.engine.maintain()  # the app that has only staged is forgotten with its stage
    server.commit(other, "b/1")


def test_the_answer_to_a_commit_counts_for_its_size() -> None:
    server = Server(max_stage_apps=40)
    rows = [(f"{n}" + "t" * 200, 1) for n in range(40)]
    server.stage(server.by("a"), "a/1", *rows)
    with pytest.raises(Throttled) as refused:
        server.commit(server.by("a"), "a/1", (0, 0))
    assert limit_of(refused) == ("max_stage_apps_per_key", 10)
    server.commit(ANYBODY, "a/1", (0, 0))
    for n in range(40 - 10):
        server.commit(ANYBODY, f"{n}/1")
    with pytest.raises(Throttled) as refused:
        server.commit(ANYBODY, "more/1")
    assert limit_of(refused) == ("max_stage_apps", 40)
    server.kill()
    with pytest.raises(Throttled):
        server.commit(ANYBODY, "more/1")
    server.commit(ANYBODY, "a/2")  # a short answer takes the place of the long one
    server.commit(ANYBODY, "more/1")
