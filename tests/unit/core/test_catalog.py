"""Everything the log knows, kept by id; names belong to the youngest."""

from topics.core.catalog import Catalog
from topics.core.facts import (
    ConfigUpdated,
    Deleted,
    HeadReserved,
    LeaseChanged,
    StageCommitted,
    TopicCreated,
    TopicDeleted,
)
from topics.core.tail import NoHistory
from topics.topic_settings import TopicConfig


def catalog() -> Catalog:
    return Catalog(max_keys=10, history=lambda topic_id: NoHistory())


def created(topic_id: int, name: str = "t") -> TopicCreated:
    return TopicCreated(topic_id, 0, name, TopicConfig().to_json(), topic_id, 1)


def test_a_name_belongs_to_the_highest_id_that_claims_it() -> None:
    known = catalog()
    known.apply(created(5), generation=1)
    known.apply(created(3), generation=1)
    assert known.by_name["t"].id == 5
    assert known.next_topic_id == 6


def test_dropping_an_older_holder_leaves_the_name_alone() -> None:
    known = catalog()
    known.apply(created(3), generation=1)
    known.apply(created(5), generation=1)
    known.apply(TopicDeleted(3, 0, "t", 3), generation=1)
    assert known.by_name["t"].id == 5
    known.apply(TopicDeleted(5, 0, "t", 5), generation=1)
    assert not known.by_name
    assert known.next_topic_id == 6


def test_names_are_listed_in_order_from_anywhere() -> None:
    known = catalog()
    for number, name in enumerate(["b", "a.2", "a.1", "\u00e4", "a"], 1):
        known.apply(created(number, name), generation=1)
    assert [*known.names()] == ["a", "a.1", "a.2", "b", "\u00e4"]
    assert [*known.names(prefix="a.")] == ["a.1", "a.2"]
    assert [*known.names(after="a.1")] == ["a.2", "b", "\u00e4"]
    assert [*known.names(prefix="a", after="a.1")] == ["a.2"]
    assert [*known.names(prefix="b", after="a")] == ["b"]
    assert [*known.names(prefix="x")] == []


def test_names_come_and_go_in_the_list_as_topics_do() -> None:
    known = catalog()
    known.apply(created(1, "m"), generation=1)
    assert [*known.names()] == ["m"]
    for number, name in enumerate(["z", "a", "m"], 2):
        known.apply(created(number, name), generation=1)
    assert [*known.names()] == ["a", "m", "z"]
    known.apply(TopicDeleted(1, 0, "m", 1), generation=1)
    assert [*known.names()] == ["a", "m", "z"], "a younger one has the name"
    known.apply(TopicDeleted(4, 0, "m", 4), generation=1)
    assert [*known.names()] == ["a", "z"]


def test_facts_of_topics_that_are_gone_change_nothing() -> None:
    known = catalog()
    known.apply(Deleted(9, 0, before=5), generation=1)
    known.apply(TopicDeleted(9, 0, "t", 9), generation=1)
    assert not known.by_id


def test_ceilings_only_rise_and_configurations_replace() -> None:
    known = catalog()
    known.apply(created(1), generation=1)
    known.apply(HeadReserved(1, 0, 50), generation=1)
    known.apply(HeadReserved(1, 0, 20), generation=1)
    changed = TopicConfig(cap_records=7).to_json()
    known.apply(ConfigUpdated(1, 0, "t", changed, 1, 1), generation=1)
    assert known.by_id[1].reserved == 50
    assert known.by_id[1].config.cap_records == 7


def test_an_app_keeps_its_last_epoch_and_answer() -> None:
    known = catalog()
    known.apply(StageCommitted(7, "etl", 3, (), (), b"{}"), generation=1)
    assert (known.apps["etl"].epoch, known.apps["etl"].last_use_ms) == (3, 7)


def test_a_topic_that_is_created_again_keeps_what_it_has() -> None:
    known = catalog()
    known.apply(created(1), generation=1)
    known.apply(HeadReserved(1, 0, 50), generation=1)
    known.apply(created(1), generation=2)
    assert known.by_id[1].reserved == 50


def test_a_lease_on_a_topic_that_is_no_queue_changes_nothing() -> None:
    known = catalog()
    known.apply(created(1), generation=1)
    known.apply(LeaseChanged(1, 1, 0, LeaseChanged.CLAIMED, 1, 500, 1, "worker"), generation=1)
    assert known.by_id[1].leases is None


def test_topics_with_a_time_to_live_are_known_without_asking_all() -> None:
    known = catalog()
    mortal = TopicConfig(ttl_ms=5).to_json()
    known.apply(TopicCreated(1, 0, "a", mortal, 1, 1), generation=1)
    known.apply(created(2, "b"), generation=1)
    assert known.expiring == {1}
    known.apply(ConfigUpdated(2, 0, "b", mortal, 2, 1), generation=1)
    assert known.expiring == {1, 2}
    known.apply(ConfigUpdated(1, 0, "a", TopicConfig().to_json(), 1, 1), generation=1)
    known.apply(TopicDeleted(2, 0, "b", 2), generation=1)
    assert known.expiring == set()
