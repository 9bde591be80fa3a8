"""What a delete by tag removes is found in steps while the topic goes on."""

from array import array
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from topics.core import deleting
from topics.core.config import parse
from topics.core.deleting import TagSelection, apply_deleted, selects_any
from topics.core.facts import Appended, Deleted, LeaseChanged, Match
from topics.core.seqset import CHUNK
from topics.core.tail import FRAME_OVERHEAD
from topics.core.topic import Topic

TAGS = ("", "a", "ab", "b")
MATCHES = (Match("a"), Match(""), Match("a", is_prefix=True), Match("", is_prefix=True), Match("c"))


def topic(**config: object) -> Topic:
    made = Topic(1, "t", 1, parse(config), max_keys=10)
    made.tags.loaded = True
    return made


def put(target: Topic, tags: list[str], *, size: int = 1) -> None:
    """Records with these tags, each one byte longer than the one before."""
    names = array("H", [len(tag) for tag in tags])
    sizes = range(size, size + len(tags))
    lengths = [FRAME_OVERHEAD + name + each for name, each in zip(names, sizes, strict=True)]
    target.apply_appended(
        Appended(
            topic_id=1,
            first_seq=target.head + 1,
            offsets=array("I", bytes(4 * len(tags))),
            lengths=array("I", lengths),
            times=array("Q", bytes(8 * len(tags))),
            name_lengths=names,
            flags=array("B", bytes(len(tags))),
            tags=list(tags),
        )
    )


def check(target: Topic) -> None:
    live = list(target.sizes(1, target.head))
    assert (target.count, target.bytes) == (len(live), sum(size for _, size in live))
    assert target.head == target.count + target.ledger.gone


def steps(*, seqs: int, tags: int) -> mock._patch_dict:
    return mock.patch.dict(deleting.__dict__, STEP_SEQS=seqs, STEP_TAGS=tags)


def delete(target: Topic, **selector: object) -> int:
    fact = Deleted(1, 0, bound=target.head + 1, **selector)  # type: ignore[arg-type]
    return apply_deleted(target, fact, generation=1)


CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.lists(st.sampled_from(TAGS), min_size=1, max_size=5)),
        st.tuples(st.just("delete"), st.sets(st.integers(1, 60), min_size=1, max_size=6)),
        st.tuples(st.just("before"), st.integers(1, 30)),
        st.tuples(st.just("tag"), st.sampled_from(MATCHES)),
    ),
    max_size=12,
)


@given(
    tagged=st.lists(st.sampled_from(TAGS), min_size=1, max_size=40),
    match=st.sampled_from(MATCHES),
    before=st.one_of(st.none(), st.integers(0, 60)),
    changes=CHANGES,
)
def test_what_is_chosen_is_what_lives_and_matches_when_it_is_removed_whatever_came_between(
    tagged: list[str],
    match: Match,
    before: int | None,
    changes: list[tuple[str, object]],
) -> None:
    t = topic()
    tags: list[str] = []

    def change(how: str, what: object) -> None:
        if how == "put":
            assert isinstance(what, list)
            put(t, what)
            tags.extend(what)
        elif how == "delete":
            assert isinstance(what, set)
            apply_deleted(t, Deleted(1, 0, seqs=tuple(sorted(what))), generation=1)
        elif how == "before":
            delete(t, before=what)
        elif how == "tag":
            delete(t, match=what)

    change("put", tagged)
    chosen = TagSelection(t, match)
    left = iter(changes)
    with steps(seqs=2, tags=1), t.tags.held(), t.tags.telling(chosen):
        for _ in chosen.find(t.head + 1):
            change(*next(left, ("", None)))
        for _ in chosen.weigh(t.head + 1):
            change(*next(left, ("", None)))
        fact = Deleted(1, 0, before, match, bound=t.head + 1)
        expected = [
            seq
            for seq, tag in enumerate(tags, 1)
            if t.is_live(seq) and match.accepts(tag) and (before is None or seq < before)
        ]
        assert selects_any(t, fact, chosen) == bool(expected)
        for each in left:
            change(*each)
        expected = [seq for seq in expected if t.is_live(seq)]
        assert apply_deleted(t, fact, generation=1, chosen=chosen) == len(expected)
        assert not any(map(t.is_live, expected))
    check(t)


def test_a_tag_on_very_many_records_is_looked_at_a_few_records_at_a_time() -> None:
    t = topic()
    put(t, ["a"] * 10)
    chosen = TagSelection(t, Match("a"))
    with steps(seqs=4, tags=9):
        assert len(list(chosen.find(t.head + 1))) == 2
    assert chosen.chunks == {0: 0b11111111110}
    assert (chosen.has(0), chosen.has(1), chosen.has(11)) == (False, True, False)


def test_very_many_tags_are_looked_at_a_few_at_a_time() -> None:
    t = topic()
    put(t, [f"t{at}" for at in range(10)])
    with steps(seqs=99, tags=3):
        assert len(list(TagSelection(t, Match("t", is_prefix=True)).find(t.head + 1))) == 3
    assert not list(TagSelection(t, Match("t", is_prefix=True)).find(t.head + 1)), "all in one step"


def test_removing_many_records_asks_only_for_the_weight_of_chunks_that_changed() -> None:
    t = topic()
    put(t, ["a", "b"] * (2 * CHUNK))
    chosen = TagSelection(t, Match("a"))
    for _ in chosen.find(t.head + 1):
        pass
    with steps(seqs=9, tags=9):
        assert len(list(chosen.weigh(t.head + 1))) == 4, "one step for each chunk"
    apply_deleted(t, Deleted(1, 0, seqs=(1, 3)), generation=1)
    t.weigh(1, t.head)
    with mock.patch.object(
        Topic, "weigh_bits", autospec=True, side_effect=Topic.weigh_bits
    ) as asked:
        fact = Deleted(1, 0, match=Match("a"), bound=t.head + 1)
        assert apply_deleted(t, fact, generation=1, chosen=chosen) == 2 * CHUNK - 2
    assert asked.call_count == 1
    check(t)
    assert t.weigh(1, t.head) == (t.count, t.bytes)


def in_segments(target: Topic) -> mock.Mock:
    """All that is there so far, moved to segments whose indexes can be asked once."""
    sizes = dict(target.sizes(1, target.head))
    history = mock.Mock(last=target.head)
    history.sizes.side_effect = lambda lo, hi: [
        (seq, size) for seq, size in sizes.items() if lo <= seq <= hi
    ]
    target.history = history
    return history


def test_what_was_weighed_in_segments_needs_no_index_whatever_dies_before_it_goes() -> None:
    t = topic()
    put(t, ["a", "b"] * CHUNK)
    history = in_segments(t)
    chosen = TagSelection(t, Match("a"))
    assert not list(chosen.find(t.head + 1))[2:]
    assert len(list(chosen.weigh(t.head + 1))) == 2
    assert not list(chosen.weigh(t.head + 1)), "nothing is weighed twice"
    sizes = dict(history.sizes(1, t.head))
    history.weigh = mock.Mock(side_effect=lambda lo, hi: (hi - lo + 1, sizes[lo]))
    apply_deleted(t, Deleted(1, 0, seqs=(3, CHUNK + 5)), generation=1)
    history.mock_add_spec(["last"])
    fact = Deleted(1, 0, match=Match("a"), bound=t.head + 1)
    assert apply_deleted(t, fact, generation=1, chosen=chosen) == CHUNK - 2
    assert t.bytes == sum(size for seq, size in sizes.items() if seq % 2 == 0)


def test_what_was_weighed_in_the_tail_is_weighed_again_once_it_is_in_a_segment() -> None:
    t = topic()
    put(t, ["a"] * 5)
    chosen = TagSelection(t, Match("a"))
    assert not list(chosen.find(t.head + 1))
    assert len(list(chosen.weigh(t.head + 1))) == 1
    assert not list(chosen.weigh(t.head + 1))
    history = in_segments(t)
    assert len(list(chosen.weigh(t.head + 1))) == 1
    history.mock_add_spec(["last"])
    assert [*chosen.live(t.head)] == [(0, 0b11110, 1 + 2 + 3 + 4)]
    t.earliest = t.head + 1
    assert not list(chosen.weigh(t.head + 1)), "nothing is left"


def test_jobs_with_a_tag_that_is_deleted_are_held_by_nobody() -> None:
    t = topic(type="queue")
    put(t, ["a", "b", "a"])
    assert t.leases is not None
    for seq in (1, 2):
        t.leases.apply(LeaseChanged(1, seq, 0, LeaseChanged.CLAIMED, seq, 500, 1, "worker"))
    delete(t, match=Match("a"))
    assert set(t.leases.leased) == {2}
