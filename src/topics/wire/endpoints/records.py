"""Calls that append, read and delete records."""

from topics.wire.endpoints.parts import (
    ABSENT,
    ARROW_STREAM,
    Endpoint,
    Example,
    Parameter,
    Success,
    created_or_not,
    flag,
    header,
    text,
    u32,
    u64,
)

RECORDS = (
    Endpoint(
        "POST /v0/topics/{topic}",
        "appendRecords",
        "Append records; also needs admin to configure a new topic",
        scopes=("write",),
        query=(
            flag("return_seqs", "List the seq of every record.", default=True),
            header("Idempotency-Key", "Used when the body has no idempotency_key."),
        ),
        body="WriteBody",
        max_body_bytes=None,
        replies=created_or_not("topic", "WriteAck"),
        errors=(
            "batch_too_large",
            "record_too_large",
            "topic_not_found",
            "head_mismatch",
            "topic_full",
        ),
        example=Example(
            2,
            path={"topic": "orders"},
            body=(
                '{"records":[{"data":{"id":1,"eur":40},"tag":"user-7"},{"data":{"id":2,'
                '"eur":9},"tag":"user-8","meta":{"via":"web"}},{"data":{"id":3,"eur":15},'
                '"tag":"user-7"}],"idempotency_key":"basket-4711"}'
            ),
            answer=(
                '{"topic":"orders","first_seq":1,"last_seq":3,"seqs":[1,2,3],"head_seq":3,'
                '"count":3,"created":false,"deduped":false}'
            ),
        ),
    ),
    Endpoint(
        "POST /v0/topics/{topic}/diff",
        "readAfterCursor",
        "Read records after a cursor, waiting for new ones if asked to",
        scopes=("read",),
        body="DiffBody",
        body_required=False,
        replies={200: Success("Records and the cursor to go on with.", "DiffPage")},
        errors=ABSENT,
        example=Example(
            3,
            path={"topic": "orders"},
            body='{"from_seq":1,"limit":100,"include_tags":true}',
            answer=(
                '{"topic":"orders","records":[{"$seq":2,"$ts":1790000000000,"$tag":"user-8",'
                '"data":{"id":2,"eur":9},"meta":{"via":"web"}},{"$seq":3,"$ts":1790000000000,'
                '"$tag":"user-7","data":{"id":3,"eur":15}}],"next_from_seq":3,"head_seq":3,'
                '"earliest_seq":1,"caught_up":true,"tombstone":null,"lag":0}'
            ),
        ),
    ),
    Endpoint(
        "GET /v0/topics/{topic}/records",
        "readRecords",
        "Read records in a form that can be cached",
        scopes=("read",),
        query=(
            u64("from_seq", "The last seq already read; excludes from_ts.", 0),
            u64("to_seq", "The last seq wanted."),
            u32("limit", "Records at most.", 256),
            u64("from_ts", "Begin at the first record of this time (ms) or later."),
            text("order", "asc, or desc for newest first; desc goes with before_seq only."),
            u64(
                "before_seq", "With order=desc: only seqs below this; absent to begin at the head."
            ),
            text("match", "An exact tag, or a prefix followed by *."),
            Parameter(
                "node",
                "Leave out records of these nodes; repeatable.",
                {"type": "array", "items": {"type": "string"}},
            ),
            u64("max_batch_bytes", "Bytes at most, beyond the first record."),
            flag("include_tags", "Show tags.", default=False),
            flag("include_meta", "Show metadata.", default=True),
            header("If-None-Match", "The ETag of the page at hand."),
        ),
        replies={
            200: Success(
                "The page, as JSON or as one Arrow stream.",
                "RecordsPage",
                performance=False,
                media=(ARROW_STREAM,),
                headers=("ETag", "Topics-Head-Seq", "Topics-Earliest-Seq"),
            ),
            304: Success(
                "The page at hand is still right.",
                headers=("ETag", "Topics-Head-Seq", "Topics-Earliest-Seq"),
            ),
        },
        errors=("invalid_request", "topic_not_found", "not_acceptable"),
        example=Example(
            4,
            path={"topic": "orders"},
            query="from_seq=0&limit=1",
            answer=(
                '{"topic":"orders","records":[{"$seq":1,"$ts":1790000000000,"data":{"id":1,'
                '"eur":40}}],"next_from_seq":1,"caught_up":false,"tombstone":null}'
            ),
        ),
    ),
    Endpoint(
        "POST /v0/topics/{topic}/delete",
        "deleteRecords",
        "Delete records below a seq, of a tag, named by seq, or what these have in common",
        scopes=("delete",),
        body="DeleteBody",
        replies={200: Success("What was deleted and what is left.", "DeleteResult")},
        errors=("batch_too_large", *ABSENT),
        example=Example(
            6,
            path={"topic": "orders"},
            body='{"match":"user-8"}',
            answer=(
                '{"topic":"orders","deleted":1,"earliest_seq":1,"head_seq":3,"count":2,"bytes":34}'
            ),
        ),
    ),
    Endpoint(
        "POST /v0/topics/{topic}/erase",
        "eraseRecords",
        "Delete records and remove their bytes from every file",
        scopes=("delete",),
        body="EraseBody",
        replies={
            202: Success("The records are deleted; their bytes are on the way out.", "ErasureState")
        },
        errors=ABSENT,
        example=Example(
            43,
            path={"topic": "orders"},
            body='{"before_seq":1}',
            status=202,
            answer=(
                '{"erasure":1,"topic":"orders","state":"running","phase":"waiting","deleted":0,'
                '"begun_ms":1790000000000,"ended_ms":null,"segments":0,"segments_done":0,'
                '"receipt":null}'
            ),
        ),
    ),
    Endpoint(
        "GET /v0/topics/{topic}/erase",
        "listErasures",
        "List the erasures of a topic, with their receipts",
        scopes=("delete",),
        replies={200: Success("Every erasure and how far it is.", "ErasureList")},
        example=Example(
            42,
            path={"topic": "orders"},
            answer='{"topic":"orders","erasures":[]}',
        ),
    ),
    Endpoint(
        "GET /v0/topics/{topic}/audit",
        "auditTopic",
        "Account for every seq of a topic",
        scopes=("read",),
        replies={200: Success("Where every seq went.", "Audit")},
        errors=ABSENT,
        example=Example(
            8,
            path={"topic": "orders"},
            answer=(
                '{"topic":"orders","epoch":1,"head_seq":3,"earliest_seq":1,"evict_floor":1,'
                '"skipped":0,"source_trim":0,"written":3,"live":2,"deleted":1,"lost_cap":0,'
                '"lost_ttl":0,"lost_crash":0,"gaps":[]}'
            ),
        ),
    ),
    Endpoint(
        "POST /v0/topics/{topic}/holes",
        "listHoles",
        "List the dead runs of a range",
        scopes=("read",),
        body="HolesBody",
        replies={200: Success("Dead runs in order.", "HolesPage")},
        errors=ABSENT,
        example=Example(
            7,
            path={"topic": "orders"},
            body='{"from_seq":1,"to_seq":3}',
            answer=(
                '{"topic":"orders","epoch":1,"delete_version":4294967297,"runs":[[2,2,'
                '"deleted"]],"next_from_seq":4,"exact_from":1}'
            ),
        ),
    ),
    Endpoint(
        "POST /v0/topics/{topic}/plan",
        "planRanges",
        "Cut a range for parallel readers",
        scopes=("read",),
        body="PlanBody",
        replies={200: Success("Ranges in order.", "PlanShape")},
        errors=ABSENT,
        example=Example(
            5,
            path={"topic": "orders"},
            body='{"from_seq":1,"to_seq":3,"target_bytes":1048576}',
            answer=(
                '{"topic":"orders","epoch":1,"delete_version":0,"head_seq":3,"evict_floor":1,'
                '"ranges":[[1,3,3,63]],"next_from_seq":4}'
            ),
        ),
    ),
)
