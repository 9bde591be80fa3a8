"""The lease projection: who holds which job, and what a replayed event changes."""

from topics.core.facts import LeaseChanged
from topics.core.leases import MAX_FAILURES, SLACK, Lease, LeaseBook
from topics.values import Failure


def event(
    kind: int, seq: int, lease_id: int, deadline: int = 500, deliveries: int = 1
) -> LeaseChanged:
    return LeaseChanged(1, seq, 100, kind, lease_id, deadline, deliveries, "worker")


def claim(seq: int, lease_id: int, deadline: int = 500, deliveries: int = 1) -> LeaseChanged:
    return event(LeaseChanged.CLAIMED, seq, lease_id, deadline, deliveries)


def test_a_claim_installs_holder_deadline_deliveries_and_moves_the_cursor() -> None:
    book = LeaseBook()
    book.apply(claim(3, lease_id=7, deliveries=2))
    assert book.leased == {3: Lease(7, "worker", 500)}
    assert book.deliveries == {3: 2}
    assert book.claim_cursor == 4


def test_events_of_an_older_lease_change_nothing() -> None:
    book = LeaseBook()
    book.apply(claim(1, lease_id=7))
    book.apply(claim(1, lease_id=8, deadline=900, deliveries=2))
    for kind in (LeaseChanged.RELEASED, LeaseChanged.EXTENDED, LeaseChanged.ACKED):
        book.apply(event(kind, 1, lease_id=7))
    assert book.leased == {1: Lease(8, "worker", 900)}
    assert book.deliveries == {1: 2}


def test_events_of_a_job_nobody_holds_change_nothing() -> None:
    book = LeaseBook()
    book.apply(event(LeaseChanged.RELEASED, 1, lease_id=7))
    assert not book.leased
    assert not book.reclaim


def test_a_released_job_waits_now_or_until_its_time() -> None:
    book = LeaseBook()
    book.apply(claim(1, lease_id=7))
    book.apply(claim(2, lease_id=8))
    book.apply(event(LeaseChanged.RELEASED, 1, lease_id=7, deadline=100))
    book.apply(event(LeaseChanged.RELEASED, 2, lease_id=8, deadline=300))
    assert book.reclaim == [1]
    assert book.delayed == {2: 300}
    assert book.deliveries == {1: 1, 2: 1}
    book.sweep(299)
    assert book.delayed == {2: 300}
    book.sweep(300)
    assert sorted(book.reclaim) == [1, 2]


def test_an_extended_lease_ends_only_after_its_new_deadline() -> None:
    book = LeaseBook()
    book.apply(claim(1, lease_id=7, deadline=500))
    book.apply(event(LeaseChanged.EXTENDED, 1, lease_id=7, deadline=900))
    assert book.sweep(901 - 1) == []
    assert [seq for seq, _ in book.sweep(901)] == [1]
    assert book.reclaim == [1]


def test_an_acked_job_leaves_no_trace() -> None:
    book = LeaseBook()
    book.apply(claim(1, lease_id=7))
    book.apply(event(LeaseChanged.ACKED, 1, lease_id=7))
    assert not book.leased
    assert not book.deliveries


def test_after_replay_every_live_job_below_the_cursor_is_somewhere() -> None:
    book = LeaseBook()
    for seq in range(1, 6):
        book.apply(claim(seq, lease_id=seq))
    book.apply(event(LeaseChanged.RELEASED, 2, lease_id=2, deadline=900))
    book.leased.pop(4)  # a claim that was never followed up
    book.resume([2, 3, 4])
    assert set(book.leased) == {3}
    assert book.delayed == {2: 900}
    assert book.reclaim == [4]
    assert set(book.deliveries) == {2, 3, 4}


def test_a_job_that_waits_is_handed_out_once_and_only_while_it_lives() -> None:
    book = LeaseBook()
    for seq in (1, 2, 3, 4):
        book.apply(claim(seq, lease_id=seq))
        book.apply(event(LeaseChanged.RELEASED, seq, lease_id=seq, deadline=100))
    book.apply(claim(1, lease_id=9))  # held again
    book.put_off(2, 900)
    assert book.pop_reclaimed(lambda seq: seq != 3) == 4
    assert book.pop_reclaimed(lambda seq: True) is None


def test_a_job_that_is_put_off_again_waits_for_its_last_time() -> None:
    book = LeaseBook()
    book.put_off(1, 300)
    book.put_off(1, 600)
    book.sweep(300)
    assert (book.reclaim, book.delayed) == ([], {1: 600})
    book.sweep(600)
    assert (book.reclaim, book.delayed) == ([1], {})


def test_times_that_no_longer_count_do_not_pile_up() -> None:
    book = LeaseBook()
    for turn in range(3 * SLACK):
        book.put_off(1, 1000 + turn)
    assert book._ready_times.size <= 2 + SLACK
    book.sweep(1000 + 3 * SLACK)
    assert book.reclaim == [1]


def test_leases_that_end_at_different_times_are_watched_though_the_heap_is_built_anew() -> None:
    book = LeaseBook()
    book.grant(range(1, SLACK + 1), range(1, SLACK + 1), [("w", SLACK, 900)])
    book.forget(range(1, SLACK + 1))
    seqs, lease_ids = (2001, 2002), range(2001, 2003)
    book.grant(seqs, lease_ids, [("a", 1, 500), ("b", 1, 700)])
    assert [seq for seq, _ in book.sweep(501)] == [2001]
    assert [seq for seq, _ in book.sweep(701)] == [2002]


def test_who_is_granted_nothing_leaves_nothing_to_watch() -> None:
    book = LeaseBook()
    book.grant([1, 2], [7, 8], [("a", 0, 100), ("b", 2, 500), ("c", 0, 200)])
    assert book.next_event_ms() == 501
    assert book.leased == {1: Lease(7, "b", 500), 2: Lease(8, "b", 500)}


def test_the_last_failure_of_a_job_is_known_until_the_job_is_gone() -> None:
    book = LeaseBook()
    first, second = Failure("w", 1, "E", "one"), Failure("w", 2, "E", "two")
    book.note_failure([1, 2], first)
    book.note_failure([1], second)
    assert book.failures == {2: first, 1: second}
    book.forget([1])
    assert book.failures == {2: first}


def test_failures_of_only_so_many_jobs_are_remembered() -> None:
    book = LeaseBook()
    failure = Failure("w", 1, "E", "one")
    book.note_failure([1], failure)
    book.note_failure(range(2, MAX_FAILURES + 2), failure)
    assert len(book.failures) == MAX_FAILURES
    assert 1 not in book.failures


def test_leases_and_delays_of_a_wrong_clock_are_pulled_in_and_others_are_not() -> None:
    book = LeaseBook()
    book.grant([1, 2, 3], [7, 8, 9], [("a", 1, 500), ("b", 2, 10**9)])
    book.release(3, 10**9)
    book.put_off(4, 700)
    assert book.furthest_ms == 10**9
    book.pull_in(100, latest_ms=1000, lease_ms=30)
    assert book.leased == {1: Lease(7, "a", 500), 2: Lease(8, "b", 130)}
    assert book.delayed == {3: 100, 4: 700}
    assert book.furthest_ms == 700
    assert [seq for seq, _ in book.sweep(131)] == [2]
    assert sorted(book.reclaim) == [2, 3]
    book.forget([1, 2, 3, 4])
    book.pull_in(100, latest_ms=1000, lease_ms=30)
    assert (book.furthest_ms, book.next_event_ms()) == (0, None)


def test_a_lease_keeps_the_time_of_its_claim_when_it_is_extended() -> None:
    book = LeaseBook()
    book.grant([1], [7], [("a", 1, 500)], 100)
    book.extend((1,), 900)
    assert book.leased == {1: Lease(7, "a", 900, 100)}


def test_the_first_jobs_that_wait_again_are_found_and_stay() -> None:
    book = LeaseBook()
    assert book.first_reclaimed(9, lambda seq: True) == []
    book.put_back([9, 3, 7, 3, 5, 1, 8])
    book.grant([7], [1], [("a", 1, 500)])
    book.put_off(8, 700)
    assert book.first_reclaimed(9, lambda seq: seq != 5) == [1, 3, 9]
    assert book.first_reclaimed(2, lambda seq: True) == [1, 3]
    assert len(book.reclaim) == 7
    book.put_back(range(10, 100))
    assert book.first_reclaimed(2, lambda seq: seq > 90) == [], "it looks at eight of them"
