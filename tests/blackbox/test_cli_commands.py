"""Every command on a directory and on a server: what it does, prints and returns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.blackbox.conftest import ServerProcess
from tests.unit.cli.runner import Answer, be_patient, clean_environment, topics

Cli = Callable[..., Answer]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean_environment(monkeypatch, tmp_path / "config")
    be_patient(monkeypatch)


@pytest.fixture(params=["directory", "server"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    """The options that lead to a log: once a directory of the test's own, once the server."""
    if request.param == "directory":
        (tmp_path / "data").mkdir()
        return "--dir", str(tmp_path / "data")
    server: ServerProcess = request.getfixturevalue("shared_server")
    return "--url", server.url


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A topic of the test's own: the server is shared."""
    return str(request.node.originalname).removeprefix("test_")[:60]


@pytest.fixture
def cli(where: tuple[str, str]) -> Cli:
    def call(*arguments: object, stdin: str = "", ok: int = 0) -> Answer:
        answer = topics(*arguments, *where, stdin=stdin)
        assert answer.code == ok, answer
        return answer

    return call


def lines(answer: Answer) -> list[str]:
    return answer.out.splitlines()


# Topics


def test_a_topic_is_made_shown_changed_and_dropped(cli: Cli, name: str) -> None:
    assert cli("create", name, "ttl_ms=1h").out == f"created {name}\n"
    assert cli("config", name, "--json").json["config"]["ttl_ms"] == 3_600_000
    changed = cli("config", name, "cap_records=5", "--json").json["config"]
    assert (changed["ttl_ms"], changed["cap_records"]) == (3_600_000, 5)
    assert cli("config", name, "ttl_ms=", "--json").json["config"]["ttl_ms"] == 0
    shown = cli("describe", name).out
    assert f"topic       {name}\n" in shown
    assert "cap_records            5  (changed)\n" in shown
    assert cli("describe", name, "--json").json["config"]["cap_records"] == 5
    assert name in [t["topic"] for t in cli("ls", name, "--json").json["topics"]]
    assert cli("drop", name, "--yes").out == f"dropped {name}\n"
    assert cli("ls", name).err == f"no topics that begin with {name}\n"
    assert cli("ls", name, "--json").json == {"topics": []}


@pytest.mark.parametrize("command", ["create", "config"])
def test_a_setting_given_as_an_option_gets_the_hint(cli: Cli, name: str, command: str) -> None:
    cli("create", name)
    refused = cli(command, name, "--cap-records", "5", ok=2)
    assert "Settings have no dashes: write cap_records=VALUE" in refused.err
    assert "Settings" not in cli(command, name, "--cap-recordz", "5", ok=2).err


def test_a_topic_that_exists_is_not_set_up_anew_by_create(cli: Cli, name: str) -> None:
    cli("create", name, "ttl_ms=1h")
    for settings in ((), ("ttl_ms=60m",)):
        assert cli("create", name, *settings).out == f"{name} exists already, nothing changed\n"
    refused = cli("create", name, "ttl_ms=5s", ok=4)
    assert "ttl_ms: 3600000 -> 5000" in refused.err
    assert "`topics config`" in refused.err
    kept = cli("create", name, "ttl_ms=5s", "--if-missing", "--json").json
    assert (kept["created"], kept["config"]["ttl_ms"]) == (False, 3_600_000)


def test_a_change_of_durable_wins_over_the_durability_there_was(cli: Cli, name: str) -> None:
    cli("create", name, "durability=memory")
    assert cli("config", name, "durable=true", "--json").json["config"]["durability"] == "fsync"


def test_a_change_that_would_remove_records_asks_first(cli: Cli, name: str) -> None:
    cli("produce", name, stdin="1\n2\n3\n")
    for setting, loss in (("cap_records=2", "1 record"), ("cap_bytes=4", "2 records")):
        refused = " ".join(cli("config", name, setting, ok=2).err.split())
        assert f"{loss} of {name}" in refused
        assert "--yes" in refused
    assert cli("config", name, "ttl_ms=1h").out == "ttl_ms: 0 -> 3600000 (1h 0m)\n"
    assert cli("config", name, "ttl_ms=1h").out == f"{name} has these settings already\n"
    cli("config", name, "cap_records=3", "cap_bytes=1MiB")
    cli("config", name, "cap_records=2", "discard=reject")
    said = cli("config", name, "discard=old", "cap_records=2", "--yes").out
    assert said == "discard: reject -> old\nevicted 1 record (3 B)\n"
    told = cli("config", name, "cap_records=1", "--yes", "--json").json
    assert told["changes"] == {"cap_records": {"was": 2, "now": 1}}
    assert told["evicted"] == {"records": 1, "bytes": 3}
    assert cli("describe", name, "--json").json["count"] == 1


def test_dropping_names_what_goes_and_refuses_without_an_answer(cli: Cli, name: str) -> None:
    cli("produce", name, stdin="1\n2\n")
    refused = cli("drop", name, ok=2)
    assert f"Drop {name} with 2 records" in " ".join(refused.err.split())
    assert cli("drop", name, "--if-empty", "--yes", ok=4).out == ""
    assert cli("drop", name, "--yes", "--json").json["deleted"] is True
    again = cli("drop", name, "--yes", ok=3)
    assert (again.out, again.err) == (
        "",
        f'topics: topic "{name}" does not exist; nothing was dropped\n',
    )


# Records


def test_lines_become_records_and_come_back(cli: Cli, name: str) -> None:
    said = cli("produce", name, "--tag", "t", "--node", "n", stdin="one\n\n two é\r\n")
    assert said.out == f"appended 2 records to {name}, seq 1 to 2\n"
    first, second = cli("read", name, "--json").json_lines
    assert (first["$seq"], first["data"], first["$tag"], first["$node"]) == (1, "one", "t", "n")
    assert second["data"] == " two é"
    shown = lines(cli("read", name))
    assert shown[0].split()[0] == "1"
    assert shown[0].endswith('  [t]  <n>  "one"')


def test_produce_counts_for_programs_too(cli: Cli, name: str) -> None:
    said = cli("produce", name, "--as", "json", "--batch", 2, "--json", stdin="1\n[2]\n{}\n").json
    assert said == {"topic": name, "count": 3, "first_seq": 1, "last_seq": 3, "created": True}
    assert cli("produce", name, stdin="").out == f"appended nothing to {name}\n"
    cli("produce", f"{name}.absent", "--no-create", stdin="x\n", ok=3)


def test_progress_goes_to_standard_error(cli: Cli, name: str) -> None:
    said = cli("produce", name, "--progress", stdin="1\n2\n")
    assert "\r2 records, " in said.err
    assert said.out == f"appended 2 records to {name}, seq 1 to 2\n"


def test_a_topic_is_copied_with_a_pipe(cli: Cli, name: str) -> None:
    records = [
        {"data": {"n": 1}, "tag": "t", "meta": {"k": [1]}},
        {"data": None, "node": "n"},
        {"data": "x", "$tag": "shown"},
    ]
    cli("produce", name, "--as", "records", stdin="\n".join(map(json.dumps, records)))
    copied = cli("read", name, "--json").out
    cli("produce", f"{name}.2", "--as", "records", stdin=copied)
    original, copy = (cli("read", topic, "--json").json_lines for topic in (name, f"{name}.2"))
    assert [_less_time(r) for r in copy] == [_less_time(r) for r in original]
    assert (original[2]["$tag"], original[0]["meta"]) == ("shown", {"k": [1]})


def _less_time(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != "$ts"}


def test_a_copy_goes_on_past_a_loss_and_says_so(cli: Cli, name: str) -> None:
    loss = '{"tombstone": {"gap_from": 1, "gap_to": 2}}\n'
    said = cli("produce", name, "--as", "records", stdin=loss + '{"data":1}\n')
    assert said.err == "line 1 announces a loss, which cannot be copied\n"
    assert said.out == f"appended 1 record to {name}, seq 1\n"


@pytest.mark.parametrize(
    ("kind", "line"), [("json", "nope"), ("json", "NaN"), ("records", '{"dat":1}')]
)
def test_a_bad_line_is_named_after_what_came_before_is_safe(
    cli: Cli, name: str, kind: str, line: str
) -> None:
    good = "1" if kind == "json" else '{"data":1}'
    topic = f"{name}.{kind}.{len(line)}"
    refused = cli("produce", topic, "--as", kind, stdin=f"{good}\n\n{line}\n{good}\n", ok=2)
    assert refused.err.startswith("topics: line 3: ")
    assert f"(appended 1 record to {topic}, seq 1 before that)" in refused.err
    assert len(lines(cli("read", topic))) == 1


def test_reading_starts_and_ends_where_it_is_told(cli: Cli, name: str) -> None:
    cli("produce", name, stdin="".join(f"{n}\n" for n in range(1, 2501)))
    assert len(lines(cli("read", name))) == 2500
    chosen = cli("read", name, "--after", 1000, "--limit", 1200, "--json").json_lines
    assert [chosen[0]["$seq"], chosen[-1]["$seq"], len(chosen)] == [1001, 2200, 1200]
    assert cli("read", name, "--limit", 0).out == ""
    cli("read", name, "--after", 1, "--since", "1h", ok=2)


def test_reading_picks_tags_and_leaves_nodes_out(cli: Cli, name: str) -> None:
    for tag, node in (("a:1", "n"), ("a:2", "m"), ("b", "m")):
        cli("produce", name, "--tag", tag, "--node", node, stdin="x\n")
    seqs = [r["$seq"] for r in cli("read", name, "--match", "a:*", "--json").json_lines]
    assert seqs == [1, 2]
    others = cli("read", name, "--not-node", "n", "--json").json_lines
    assert [r["$seq"] for r in others] == [2, 3]
    assert [r["$seq"] for r in cli("tail", name, "--match", "a:1", "--json").json_lines] == [1]


def test_a_loss_is_shown_where_it_happened(cli: Cli, name: str) -> None:
    cli("create", name, "cap_records=2")
    cli("produce", name, stdin="1\n2\n3\n4\n5\n")
    shown = lines(cli("read", name))
    assert shown[0] == "!!! LOST 3 records: seq 1 to 3, by the topic's cap !!!"
    assert len(shown) == 3
    first = cli("read", name, "--json").json_lines[0]
    assert (first["tombstone"]["gap_to"], first["tombstone"]["reason"]) == (3, "cap")


def test_tail_prints_the_newest_even_behind_holes(cli: Cli, name: str) -> None:
    cli("produce", name, "--tag", "old", stdin="1\n2\n3\n")
    cli("produce", name, "--tag", "gone", stdin="4\n" * 40)
    cli("delete", name, "--match", "gone", "--yes")
    assert [r["data"] for r in cli("tail", name, "-n", 2, "--json").json_lines] == ["2", "3"]
    assert len(lines(cli("tail", name))) == 3
    assert cli("tail", name, "-n", 0).out == ""


def test_following_prints_what_comes_and_ends_when_nothing_does(cli: Cli, name: str) -> None:
    cli("produce", name, stdin="1\n2\n")
    followed = cli("tail", name, "-f", "-n", 1, "--for", "300ms", "--json")
    assert [r["data"] for r in followed.json_lines] == ["2"]


def test_watching_covers_many_topics(cli: Cli, name: str) -> None:
    cli("produce", f"{name}.a", stdin="1\n")
    cli("produce", f"{name}.b", stdin="2\n")
    watched = cli("watch", f"{name}.a", f"{name}.b", "--all", "--for", "500ms", "--json")
    found = {line["topic"]: line["data"] for line in watched.json_lines if "data" in line}
    assert found == {f"{name}.a": "1", f"{name}.b": "2"}
    shown = cli("watch", f"{name}.a", "--all", "--for", "300ms").out
    assert shown.startswith(f"{name}.a       1  ")
    assert cli("watch", f"{name}.a", "--for", "300ms").out == ""
    assert cli("watch", f"{name}.a", "absent", "--for", "300ms", ok=3).out == ""


def test_watching_takes_the_beginning_of_names(cli: Cli, name: str) -> None:
    for part in ("a", "b"):
        cli("produce", f"{name}.{part}", "-m", part)
    shown = cli("watch", f"{name}.*", "--all", "--for", "100ms", "--json").json_lines
    assert {line["topic"] for line in shown if "$seq" in line} == {f"{name}.a", f"{name}.b"}
    cli("watch", f"{name}.z*", ok=3)


def test_records_are_deleted_for_good_and_only_when_told_which(cli: Cli, name: str) -> None:
    cli("produce", name, "--tag", "a", stdin="1\n2\n")
    cli("produce", name, "--tag", "b", stdin="3\n")
    cli("delete", name, ok=2)
    cli("delete", name, "--before", 2, ok=2)
    cli("delete", name, "--seqs", "1;2", "--yes", ok=2)
    assert cli("delete", name, "--seqs", "7,8", "--yes", "--json").json["deleted"] == 0
    gone = cli("delete", name, "--before", 3, "--match", "a", "--yes", "--json").json
    assert (gone["deleted"], gone["count"], gone["lake_cursors"]) == (2, 1, [])
    assert cli("delete", name, "--match", "x*", "--yes").out == (
        f"deleted 0 records of {name}, 1 is left\n"
    )
    assert cli("read", name, "--json").json_lines[0]["data"] == "3"


def test_a_delete_points_to_the_lake_that_copies_the_topic(cli: Cli, name: str) -> None:
    cli("produce", name, stdin="1\n")
    cli("cursor", "set", name, "lake.main", 1)
    hinted = cli("delete", name, "--before", 2, "--yes")
    assert "`topics lake delete TABLE --match TAG`" in hinted.err
    assert "lake.main" in hinted.err
    assert cli("delete", name, "--before", 2, "--yes", "--json").json["lake_cursors"] == [
        "lake.main"
    ]


# Queues


@pytest.fixture
def jobs(cli: Cli, name: str) -> str:
    """A queue whose leases outlive a command, and that gives up after the first failure."""
    settings = ("type=queue", "max_deliveries=1", "leases_durable=true")
    cli("create", name, *settings, f"dead_letter={name}.dead")
    cli("produce", name, "--tag", "t", stdin="1\n2\n3\n")
    return name


def test_jobs_are_claimed_finished_and_given_back(cli: Cli, jobs: str) -> None:
    peeked = cli("queue", "peek", jobs, "-n", 2, "--json").json_lines
    assert [job["data"] for job in peeked] == ["1", "2"]
    assert cli("queue", "peek", jobs, "--state", "leased").err == "no jobs\n"
    first, second = cli("queue", "claim", jobs, "-n", 2, "--node", "w", "--json").json_lines
    assert (first["$seq"], first["deliveries"], first["$tag"]) == (1, 1, "t")
    heading, holder, *rest = lines(cli("queue", "peek", jobs))
    assert heading.split()[:5] == ["SEQ", "STATE", "WORKER", "SINCE", "UNTIL"]
    assert holder.split()[:3] == ["1", "leased", "w"]
    assert len(rest) == 2
    stats = cli("queue", "stats", jobs, "--json").json
    assert (stats["ready"], stats["in_flight"], stats["oldest_seq"]) == (1, 2, 1)
    held = f"1@{first['lease_id']}"
    done = cli("queue", "ack", jobs, held, 3, "--node", "w", "--json", ok=1).json
    assert (done["acked"], done["skipped"]) == (1, [3])
    other = cli("queue", "ack", jobs, 2, "--node", "other", ok=1)
    assert "not held by this worker: 2" in other.out
    stale = f"2@{second['lease_id']}f"
    assert "gave back 0" in cli("queue", "nack", jobs, stale, "--node", "w", ok=1).out
    back = cli("queue", "nack", jobs, 2, "--node", "w", "--delay", "1h", "--json").json
    assert (back["nacked"], back["ready"], back["in_flight"]) == (1, 1, 0)
    assert cli("queue", "stats", jobs, "--json").json["delayed"] == 1
    assert "delayed       1\n" in cli("queue", "stats", jobs).out
    shown = cli("queue", "claim", jobs, "--node", "w", "--lease", "1m").out
    assert shown.startswith("3@lease_")
    assert shown.endswith('delivery 1  [t]  "3"\n')
    assert cli("queue", "claim", jobs, "--node", "w").err == "no jobs\n"
    cli("queue", "ack", jobs, "x", ok=2)


def test_dead_letters_are_shown_and_brought_back(cli: Cli, jobs: str) -> None:
    cli("queue", "claim", jobs, "--node", "w")
    cli("queue", "nack", jobs, 1, "--node", "w", "--error", "out of paper")
    assert cli("queue", "dead", jobs).err == f"no dead letters of {jobs} in {jobs}.dead\n"
    cli("queue", "claim", jobs, "--node", "w")
    heading, letter = lines(cli("queue", "dead", jobs))
    assert heading.split("  ")[-1] == "DATA"
    assert "LAST ERROR" in heading
    assert letter.split()[:3] == [f"{jobs}.dead#1", "1", "1"]
    (found,) = cli("queue", "dead", jobs, "--json").json_lines
    assert (found["dead_letter"], found["data"]) == (f"{jobs}.dead", "1")
    # Each of these opens the directory anew: the count holds through a restart.
    for command in (("queue", "stats", jobs), ("describe", jobs)):
        assert f"dead letters 1 in {jobs}.dead" in " ".join(cli(*command).out.split())
    assert cli("queue", "stats", jobs, "--json").json["dead_letters"] == 1
    assert f"1 job failed too often: {jobs}.dead holds it." in cli("explain", jobs).out
    assert cli("queue", "redrive", jobs, "--seqs", "2,3", "--json").json["moved"] == 0
    moved = cli("queue", "redrive", jobs, "--seqs", "1", "--json").json
    assert moved == {"topic": jobs, "from": f"{jobs}.dead", "moved": 1, "more": False}
    assert cli("queue", "redrive", jobs).out == f"put 0 jobs back into {jobs} from {jobs}.dead\n"


def test_a_dead_letter_shows_what_its_last_worker_failed_with(
    shared_server: ServerProcess, name: str
) -> None:
    def call(*arguments: object, stdin: str = "") -> str:
        answer = topics(*arguments, "--url", shared_server.url, stdin=stdin)
        assert answer.code == 0, answer
        return answer.out

    call("create", name, "type=queue", "max_deliveries=1", f"dead_letter={name}.dead")
    call("produce", name, stdin="1\n")
    call("queue", "claim", name, "--node", "w")
    call("queue", "nack", name, 1, "--node", "w", "--error", "out of paper")
    call("queue", "claim", name, "--node", "w")
    assert "out of paper (worker w)" in call("queue", "dead", name)
    assert "Its last error was out of paper (worker w)." in call("explain", f"{name}#1")


def test_jobs_keep_their_numbers_to_the_digit(cli: Cli, jobs: str) -> None:
    cli("delete", jobs, "--match", "*", "--yes")
    cli("produce", jobs, "--as", "json", stdin="1e400\n")
    assert '"data":1e400' in cli("queue", "claim", jobs, "--node", "w", "--json").out
    cli("queue", "nack", jobs, 4, "--node", "w")
    cli("queue", "claim", jobs, "--node", "w")
    assert '"data":1e400' in cli("queue", "dead", jobs, "--json").out


def test_queue_commands_refuse_a_log_and_a_queue_without_dead_letters(cli: Cli, name: str) -> None:
    cli("create", name)
    for command in (["stats", name], ["peek", name], ["claim", name], ["dead", name]):
        assert "not a queue" in cli("queue", *command, ok=4).err
    cli("create", f"{name}.q", "type=queue")
    assert "max_deliveries=5" in cli("queue", "dead", f"{name}.q", ok=2).err
    cli("queue", "stats", "absent", ok=3)


# Routers, cursors, the ledger


def test_a_router_is_made_listed_and_removed(cli: Cli, name: str) -> None:
    made = cli("router", "put", f"{name}->x", "--from", name, "--to", f"{name}.copy", "--json")
    assert (made.json["source"], made.json["guarantee"]) == (name, "at_least_once")
    cli("produce", name, stdin="1\n")
    assert len(lines(cli("read", f"{name}.copy"))) == 1
    (found,) = cli("router", "ls", name, "--json").json["routers"]
    assert found["forwarded_total"] == 1
    assert f"{name}->x" in cli("router", "ls").out
    again = cli(
        "router", "put", f"{name}->x", "--from", name, "--to", f"{name}.copy", "--match", "a*"
    )
    assert "match             a*\n" in again.out
    assert cli("router", "get", f"{name}->x", "--json").json["filter"] == ["tag", "Glob", "a*"]
    cycle = ("router", "put", f"{name}.back", "--from", f"{name}.copy", "--to", name)
    assert "cycle" in cli(*cycle, ok=4).err
    cli("router", "rm", f"{name}->x", ok=2)
    assert cli("router", "rm", f"{name}->x", "--yes", "--json").json["deleted"] is True
    cli("router", "rm", f"{name}->x", "--yes", ok=3)
    cli("router", "get", f"{name}->x", ok=3)
    assert cli("router", "ls", name).err == "no routers\n"


def test_cursors_tell_their_lag_in_records_and_in_time(cli: Cli, name: str) -> None:
    cli("produce", name, stdin="1\n2\n3\n")
    cli("cursor", "ls", name)
    placed = cli("cursor", "set", name, "billing", 1, "--json").json
    assert (placed["seq"], placed["lag_records"]) == (1, 2)
    (row,) = lines(cli("cursor", "ls", name))[1:]
    assert row.split()[:5] == [name, "billing", "1", "3", "2"]
    assert [c["cursor"] for c in cli("cursor", "ls", name, "--json").json["cursors"]] == ["billing"]
    assert name in cli("cursor", "ls").out
    assert "lag          2 records, " in cli("cursor", "get", name, "billing").out
    assert cli("cursor", "set", name, "billing", "--head", "--json").json["lag_records"] == 0
    cli("cursor", "set", name, "billing", 99, ok=2)
    cli("cursor", "set", name, "billing", ok=2)
    cli("cursor", "rm", name, "billing", ok=2)
    assert cli("cursor", "rm", name, "billing", "--yes").out == f"forgot billing of {name}\n"
    cli("cursor", "get", name, "billing", ok=3)
    assert cli("cursor", "ls", name).err == "no cursors\n"


def test_the_ledger_accounts_for_every_seq(cli: Cli, name: str) -> None:
    cli("create", name, "cap_records=3")
    cli("produce", name, stdin="1\n2\n3\n4\n5\n")
    cli("delete", name, "--before", 4, "--yes")
    heading, row = lines(cli("audit", name))
    assert heading.split()[:4] == ["TOPIC", "WRITTEN", "LIVE", "DELETED"]
    assert row.split() == [name, "5", "2", "1", "2", "0", "0", "0", "0", "yes"]
    (ledger,) = cli("audit", name, "--strict", "--json").json["ledgers"]
    assert (ledger["written"], ledger["adds_up"]) == (5, True)
    assert name in cli("audit").out
    cli("audit", "absent", ok=3)


# The whole


def test_top_prints_once_without_a_terminal(cli: Cli, name: str) -> None:
    cli("produce", name, stdin="1\n")
    cli("cursor", "set", name, "slow", 0)
    shown = cli("top", "--interval", "100ms").out
    row = next(line for line in shown.splitlines() if line.startswith(name))
    assert row.split()[1:4] == ["0", "1", "1"]
    assert "1 slow" in row
    facts = cli("top", "--once", "--interval", "100ms", "--json").json
    assert {"topic": name, "cursor": "slow", "lag_records": 1} in [
        {key: c[key] for key in ("topic", "cursor", "lag_records")} for c in facts["cursors"]
    ]
    cli("top", "--once", "--interval", "1ms", ok=2)


def test_doctor_finds_a_working_log_healthy(cli: Cli, name: str) -> None:
    cli("create", name)
    report = cli("doctor", "--json").json
    assert report["ok"] is True
    states = {check["name"]: check["state"] for check in report["checks"]}
    assert states["target"] == states["record times"] == "ok"
    assert "open files" in cli("doctor").out


def test_explain_tells_the_story_of_a_topic(cli: Cli, name: str) -> None:
    cli("create", name, "cap_records=2")
    assert "Nothing was lost, and nothing waits." in cli("explain", name).out
    cli("produce", name, stdin="1\n2\n3\n4\n5\n")
    cli("cursor", "set", name, "slow", 1)
    story = cli("explain", name)
    assert "with 2 live of 5 written records" in story.out
    assert "3 records made room for newer ones, as its cap (2 records) asks for." in story.out
    assert f"Try: topics explain {name}/slow --" in story.out
    facts = cli("explain", name, "--json").json
    assert facts["command"].startswith(f"topics explain {name}/slow")
    cli("explain", "absent", ok=3)


def test_explain_tells_what_a_consumer_missed(cli: Cli, name: str) -> None:
    cli("create", name, "cap_records=2")
    cli("produce", name, stdin="1\n2\n3\n4\n5\n")
    cli("cursor", "set", name, "slow", 1)
    story = cli("explain", f"{name}/slow").out
    assert "slow has consumed" in story
    assert "seq 2 to 3 is gone (by the topic's cap)" in story
    assert f"Try: topics cursor set {name} slow 3 --" in story
    cli("cursor", "set", name, "slow", 4)
    assert "1 record to go, from seq 5 on" in cli("explain", f"{name}/slow").out
    cli("cursor", "set", name, "slow", 5)
    assert "It is up to date." in cli("explain", f"{name}/slow").out
    cli("explain", f"{name}/absent", ok=3)


def test_explain_tells_where_one_record_is_or_went(cli: Cli, name: str) -> None:
    cli("create", name, "cap_records=3")
    cli("produce", name, "--tag", "t", stdin="1\n2\n3\n4\n5\n")
    cli("delete", name, "--before", 4, "--yes")
    evicted = cli("explain", f"{name}#1").out
    assert f"Seq 1 of {name} is gone: evicted" in evicted
    assert "Seq 1 to 2 is gone for the same reason." in evicted
    assert "deleted on purpose" in cli("explain", f"{name}#3").out
    assert "It has 3 bytes of data, tag t." in cli("explain", f"{name}#5").out
    assert "has no seq 9 yet" in cli("explain", f"{name}#9").out
    cli("explain", f"{name}#x", ok=2)
    assert f"'{name}#5'" in cli("explain", name, "5", ok=2).err
    assert f"'{name}/slow'" in cli("explain", name, "slow", ok=2).err


def test_explain_tells_what_became_of_a_job(cli: Cli, jobs: str) -> None:
    assert "3 jobs are ready, and no worker holds any." in cli("explain", jobs).out
    cli("queue", "claim", jobs, "--node", "w")
    assert "As a job it may be at work" in cli("explain", f"{jobs}#1").out
    cli("queue", "nack", jobs, 1, "--node", "w")
    cli("queue", "claim", jobs, "--node", "w")
    story = cli("explain", f"{jobs}#1").out
    assert story.startswith(f"Job 1 of {jobs} is dead: it failed too often and is now {jobs}.dead")
    assert "It was handed out 1 time. (died " in story
    assert f"Try: topics queue redrive {jobs} --" in story
    assert cli("queue", "ack", jobs, 2, "--node", "w").out == f"finished 1 job of {jobs}\n"
    assert "is gone: finished, or deleted." in cli("explain", f"{jobs}#2").out
