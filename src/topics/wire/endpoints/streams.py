"""Calls that open a stream of records."""

from topics.wire.endpoints.parts import (
    ABSENT,
    EVENT_STREAM,
    LISTS_BYTES,
    Endpoint,
    Example,
    Success,
    flag,
    header,
)

STREAMS = (
    Endpoint(
        "POST /v0/watch",
        "createWatch",
        "Open a session that follows topics",
        scopes=("read",),
        query=(flag("lenient", "Leave out topics that do not exist.", default=False),),
        body="WatchBody",
        max_body_bytes=LISTS_BYTES,
        replies={200: Success("The session and its stream.", "WatchOpened")},
        errors=ABSENT,
        example=Example(
            18,
            body='{"topics":{"orders":{"from_seq":0}}}',
            answer=(
                '{"wid":"wid_SWpDmuHeO_fBpSjgh9kqwg",'
                '"stream_url":"/v0/watch/wid_SWpDmuHeO_fBpSjgh9kqwg","session_ttl_ms":300000,'
                '"topics":{"orders":{"from_seq":0,"head_seq":3,"earliest_seq":1}}}'
            ),
        ),
    ),
    Endpoint(
        "GET /v0/watch/{wid}",
        "openWatch",
        "Follow a session's topics; needs the key that created it",
        scopes=(),
        query=(header("Last-Event-ID", "The id of the last event received, to resume."),),
        replies={
            200: Success(
                "Events record, caught-up, tombstone, topic-deleted and error.",
                media=(EVENT_STREAM,),
            )
        },
        errors=("not_acceptable", "not_found"),
        stream_token=True,
        own_auth=True,
        example=Example(
            35,
            path={"wid": "wid_SWpDmuHeO_fBpSjgh9kqwg"},
            answer=(
                'id: {"orders":1}\nevent: record\ndata: {"topic":"orders","from_seq":0,'
                '"head_seq":4,"records":[{"$seq":1,"$ts":1790000000000,"data":{"id":1,'
                '"eur":40}}],"to_seq":1}\n\n'
            ),
        ),
    ),
    Endpoint(
        "GET /v0/ws",
        "openWebSocket",
        "Subscribe and publish over one socket; each command needs its own scope",
        scopes=(),
        replies={101: Success("The connection is a WebSocket now; see the message schemas.")},
        errors=("invalid_request",),
    ),
)
