"""What `topics top` works out of two looks at a server."""

from __future__ import annotations

from topics.cli import _top_view as view
from topics.cli._sampling import Lag, Sample, SampleDelta, TopicNumbers, parse_metrics

METRICS = """\
# HELP topics_pressure How hard the log is pressed.
# TYPE topics_pressure gauge
topics_pressure 0.5
# TYPE topics_ready gauge
topics_ready 1
# TYPE topics_uptime_ms counter
topics_uptime_ms {uptime}
# TYPE topics_wal_bytes_written_total counter
topics_wal_bytes_written_total {written}
# TYPE topics_topic_head_seq gauge
topics_topic_head_seq{{topic="a \\"b\\""}} {head}
topics_topic_head_seq{{topic="jobs"}} 3
# TYPE topics_topic_queue_in_flight gauge
topics_topic_queue_in_flight{{topic="jobs"}} 2
# TYPE topics_topics_by_class gauge
topics_topics_by_class{{class="disk"}} 2
# TYPE topics_cursor_lag_records gauge
topics_cursor_lag_records{{topic="jobs",cursor="slow"}} 7
# TYPE topics_cursor_lag_seconds gauge
topics_cursor_lag_seconds{{topic="jobs",cursor="slow"}} 1.5
# TYPE topics_wal_fsync_latency_us histogram
topics_wal_fsync_latency_us_bucket{{le="100"}} {fast}
topics_wal_fsync_latency_us_bucket{{le="1000"}} {most}
topics_wal_fsync_latency_us_bucket{{le="+Inf"}} {syncs}
topics_wal_fsync_latency_us_sum 5
topics_wal_fsync_latency_us_count {syncs}
"""


def sample(at: float, **numbers: int) -> Sample:
    defaults = {"uptime": 0, "written": 0, "head": 0, "fast": 0, "most": 0, "syncs": 0}
    return parse_metrics(METRICS.format(**{**defaults, **numbers}), at=at)


def test_metrics_give_topics_cursors_and_the_server_itself() -> None:
    taken = sample(0.0, head=5)
    assert taken.topics == {
        'a "b"': TopicNumbers(head=5),
        "jobs": TopicNumbers(head=3, in_flight=2),
    }
    assert taken.lags == [Lag("jobs", "slow", 7, 1.5)]
    assert (taken.leases, taken.server["pressure"]) == (2, 0.5)
    assert taken.slowest("jobs") == Lag("jobs", "slow", 7, 1.5)
    assert taken.slowest('a "b"') is None


def test_rates_are_what_changed_by_the_second() -> None:
    change = SampleDelta(sample(10.0, head=5, written=1000), sample(12.0, head=25, written=5000))
    assert change.appended('a "b"') == 10.0
    assert change.appended_in_all() == 10.0
    assert change.rate("wal_bytes_written_total") == 2000.0
    assert change.rate("unheard_of") is None


def test_what_starts_again_from_nothing_has_no_negative_rate() -> None:
    change = SampleDelta(sample(0.0, head=50, written=500), sample(1.0, head=2, written=3))
    assert change.appended('a "b"') == 0
    assert change.rate("wal_bytes_written_total") == 0
    fresh = SampleDelta(Sample(0.0), sample(1.0, head=4))
    assert fresh.appended('a "b"') == 4


def test_a_restart_in_between_makes_up_no_rates() -> None:
    now = sample(1.0, head=719_234, written=5000, uptime=300, fast=9, most=9, syncs=9)
    starting = Sample(0.0, server={"ready": 0.0, "uptime_ms_total": 100.0})
    for before in (sample(0.0, head=5, uptime=9000), starting):
        change = SampleDelta(before, now)
        assert change.is_interrupted
        assert change.appended_in_all() == change.rate("wal_bytes_written_total") == 0
        assert change.fsync_us(0.5) is None
    assert not SampleDelta(sample(0.0, uptime=100), now).is_interrupted


def test_a_narrow_screen_leaves_columns_out_and_cuts_no_number() -> None:
    row = ["orders", "1200", "719234", "719234", "80.0 MiB", "-", "-", "12 billing", "1m 2s"]
    assert view.fitting([row], 200) == list(range(9))
    narrow = [view.HEADINGS[at] for at in view.fitting([row], 50)]
    assert narrow == ["topic", "in/s", "records", "ready", "leased", "lag"]
    assert [view.HEADINGS[at] for at in view.fitting([row], 10)] == ["topic", "in/s"]
    assert view.fitting([], 200) == list(range(9))


def test_fsync_latency_is_of_the_interval_only() -> None:
    before = sample(0.0, fast=1000, most=1000, syncs=1000)
    change = SampleDelta(before, sample(1.0, fast=1000, most=1090, syncs=1100))
    assert change.fsync_us(0.5) == 1000
    assert change.fsync_us(0.99) == float("inf")
    assert SampleDelta(before, before).fsync_us(0.5) is None
    shown = "\n".join(view.summary(change, "http://x"))
    assert "p50 <= 1 ms  p99 > 100 ms" in shown
    assert view.facts(change)["fsync_us_p99"] is None


def test_the_screen_shows_the_busiest_topics_and_counts_those_without_room() -> None:
    from rich.console import Console  # noqa: PLC0415 - only for this

    now = Sample(1.0, {f"t{n:02}": TopicNumbers(head=n) for n in range(40)})
    console = Console(width=100, height=24, record=True, file=None, force_terminal=False)
    with console.capture() as capture:
        console.print(
            view.screen(
                SampleDelta(Sample(0.0), now), "/data", height=24, width=100, trouble="no answer"
            )
        )
    shown = capture.get()
    assert len(shown.splitlines()) <= 24
    assert shown.index("t39") < shown.index("t38")
    assert "no answer" in shown
    assert "more topics; q quits" in shown
    assert "t00" not in shown


def test_a_directory_does_not_pretend_to_know_its_owner() -> None:
    change = SampleDelta(Sample(0.0), Sample(1.0, {"a": TopicNumbers(head=3)}))
    assert view.facts(change)["pressure"] is None
    assert "what its owner is doing is not known" in "\n".join(view.summary(change, "/data"))
