"""Records: write, read after a cursor, delete."""

from __future__ import annotations

from functools import partial

from topics.http.api.call import Call
from topics.http.api.reading import diff, match_of
from topics.http.api.routing import Handler
from topics.http.api.writing import WriteGroups, check, take_key, write_long
from topics.values import DeleteResult, ErasureState
from topics.wire import requests, responses
from topics.wire.shapes import ErasureList


def write(groups: WriteGroups, call: Call) -> None:
    (topic,) = call.names
    body = call.json_body()
    return_seqs = not call.request.raw_query or call.query.flag("return_seqs", default=True)
    if len(body) > requests.LONG_BODY_BYTES:
        groups.write_before(topic)
        write_long(call, topic, return_seqs=return_seqs)
        return
    sent = requests.decode_write(body)
    if b"idempotency-key" in call.request.headers:
        take_key(call, sent)
    check(call.engine, call.principal, topic, sent, most_bytes=len(body))
    groups.write(call, topic, sent, return_seqs=return_seqs)


def delete(call: Call) -> None:
    (topic,) = call.names
    sent = requests.decode_delete(call.json_body())

    def answer(done: DeleteResult) -> None:
        call.answer(responses.present(done, call.spent()))

    match = match_of(sent.predicate)
    call.run(call.engine.delete(topic, before=sent.before_seq, match=match, seqs=sent.seqs), answer)


def erase(call: Call) -> None:
    (topic,) = call.names
    sent = requests.decode_erase(call.json_body())

    def answer(begun: ErasureState) -> None:
        if call.engine.upkeep is not None:
            call.engine.upkeep.hurry()
        call.answer(responses.present(begun, call.spent()), 202)

    match = match_of(sent.predicate)
    call.run(call.engine.erasing.begin(topic, before=sent.before_seq, match=match), answer)


def erasures(call: Call) -> None:
    (topic,) = call.names

    def answer(found: list[ErasureState]) -> None:
        call.answer(responses.present(ErasureList(topic, found), call.spent()))

    call.run(call.engine.erasing.of_topic(topic, allows=call.principal.allows), answer)


def handlers() -> dict[str, Handler]:
    """The calls on records; writes that arrive in one tick share their work."""
    return {
        "appendRecords": partial(write, WriteGroups()),
        "readAfterCursor": diff,
        "deleteRecords": delete,
        "eraseRecords": erase,
        "listErasures": erasures,
    }
