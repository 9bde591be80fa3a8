import json
from itertools import product

import pytest

from topics.values import Record
from topics.wire.rendering import DEFAULT, EVERYTHING, Include, Row, render_records, rows_of

BARE: Row = (1, 1790000000000, None, None, b'{"c":21.50}', None)
FULL: Row = (2, 1790000000001, 'gw "n"', "räum:4", b"null", b'{"fw":1}')


def test_no_records_are_an_empty_array() -> None:
    assert render_records([]) == b"[]"


def test_a_record_shows_what_it_has_in_a_fixed_order() -> None:
    assert render_records([BARE]) == b'[{"$seq":1,"$ts":1790000000000,"data":{"c":21.50}}]'
    assert (
        render_records([FULL], EVERYTHING).decode()
        == r'[{"$seq":2,"$ts":1790000000001,"$node":"gw \"n\"","$tag":"räum:4",'
        r'"data":null,"meta":{"fw":1}}]'
    )


def test_neighbours_do_not_lend_each_other_what_they_lack() -> None:
    together = render_records([BARE, FULL, BARE], EVERYTHING)
    alone = [render_records([row], EVERYTHING)[1:-1] for row in (BARE, FULL, BARE)]
    assert together == b"[%b]" % b",".join(alone)


@pytest.mark.parametrize("flags", list(product((False, True), repeat=3)))
@pytest.mark.parametrize(
    "row", [BARE, FULL, (1, 2, "", None, b"0", b""), (1, 2, None, "", b"0", None)]
)
def test_a_record_alone_looks_as_it_does_among_others(
    row: Row, flags: tuple[bool, bool, bool]
) -> None:
    include = Include(*flags)
    alone = render_records([row], include)[1:-1]
    assert render_records([row, row], include) == b"[%b,%b]" % (alone, alone)


def test_tags_are_shown_on_demand_and_the_rest_unless_declined() -> None:
    assert b"$tag" not in render_records([FULL], DEFAULT)
    assert b"meta" not in render_records([FULL], Include(meta=False))
    assert b"data" not in render_records([FULL], Include(data=False))
    assert render_records([BARE], Include(data=False)) == b'[{"$seq":1,"$ts":1790000000000}]'


def test_empty_names_are_shown_and_an_empty_meta_is_none() -> None:
    row: Row = (1, 2, "", "", b"0", b"")
    assert render_records([row], EVERYTHING) == (
        b'[{"$seq":1,"$ts":2,"$node":"","$tag":"","data":0}]'
    )


def test_payloads_are_copied_as_they_are() -> None:
    odd = b'{"b":1e2,"a":-0.0,"b":"\\u00e9"}'
    assert odd in render_records([(1, 2, None, None, odd, None)])


def test_records_of_the_python_api_render_the_same() -> None:
    records = [Record(*BARE), Record(*FULL)]
    assert rows_of(records) == [BARE, FULL]
    shown = json.loads(render_records(rows_of(records), EVERYTHING))
    assert shown == [record.to_dict() for record in records]
