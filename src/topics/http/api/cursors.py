"""Named cursors: positions that consumers leave with the log."""

from __future__ import annotations

from topics.http.api.call import Call
from topics.http.api.routing import Handler
from topics.http.api.topics import page_size
from topics.values import CursorState
from topics.wire import requests, responses
from topics.wire.cursors import list_cursor, parse_list_cursor
from topics.wire.shapes import CursorDropped, CursorList


def put(call: Call) -> None:
    name, cursor = call.names
    sent = requests.decode_cursor(call.json_body())

    def answer(done: tuple[bool, CursorState]) -> None:
        created, state = done
        call.answer(responses.present(state, call.spent()), 201 if created else 200)

    call.run(call.engine.cursors.put(name, cursor, sent.seq), answer)


def get(call: Call) -> None:
    name, cursor = call.names
    call.run(
        call.engine.cursors.get(name, cursor),
        lambda state: call.answer(responses.present(state, call.spent())),
    )


def listing(call: Call) -> None:
    (name,) = call.names
    after = parse_list_cursor(call.query.text("cursor") or "")
    size = page_size(call.query.u64("page_size"))

    def answer(found: list[CursorState]) -> None:
        behind = [state for state in found if after is None or state.cursor > after]
        shape = CursorList(name, behind[:size])
        if len(behind) > size:
            shape.next_cursor = list_cursor(behind[size - 1].cursor)
        call.answer(responses.present(shape, call.spent()))

    call.run(call.engine.cursors.list(name), answer)


def drop(call: Call) -> None:
    name, cursor = call.names
    call.run(
        call.engine.cursors.drop(name, cursor),
        lambda deleted: call.answer(
            responses.present(CursorDropped(name, cursor, deleted), call.spent())
        ),
    )


HANDLERS: dict[str, Handler] = {
    "listCursors": listing,
    "getCursor": get,
    "setCursor": put,
    "dropCursor": drop,
}
