"""Calls on topics, their named cursors, and the routers between them."""

from topics.wire.endpoints.parts import (
    ABSENT,
    PAGING,
    PREFIX,
    Endpoint,
    Example,
    Success,
    created_or_not,
    flag,
    text,
)

TOPICS = (
    Endpoint(
        "GET /v0/topics",
        "listTopics",
        "List topics by name",
        scopes=("read",),
        query=(
            PREFIX,
            *PAGING,
            flag("touch", "Count as a use.", default=False),
            flag("details", "Tell type, durability, losses and jobs, too.", default=False),
        ),
        replies={200: Success("Topics the key may see.", "TopicList")},
        errors=("invalid_request",),
        example=Example(
            21,
            query="prefix=ord",
            answer=(
                '{"topics":[{"topic":"orders","head_seq":4,"earliest_seq":1,"count":3,'
                '"bytes":51,"durable":true,"effective_priority":499}]}'
            ),
        ),
    ),
    Endpoint(
        "PUT /v0/topics/{topic}",
        "configureTopic",
        "Create a topic or replace its configuration",
        scopes=("admin",),
        query=(
            flag("dry_run", "Change nothing; tell what the change would evict.", default=False),
        ),
        body="ConfigBody",
        body_required=False,
        replies=created_or_not("topic", "TopicConfigured"),
        errors=("topic_exists_incompatible",),
        example=Example(
            1,
            path={"topic": "orders"},
            body='{"durability":"fsync","ttl_ms":604800000}',
            status=201,
            answer=(
                '{"topic":"orders","created":true,"config":{"ttl_ms":604800000,"durable":true,'
                '"durability":"fsync"}}'
            ),
        ),
    ),
    Endpoint(
        "GET /v0/topics/{topic}",
        "getTopic",
        "Read the state of a topic",
        scopes=("read",),
        query=(flag("touch", "Count as a read of the topic.", default=True),),
        replies={200: Success("The topic now.", "TopicStateBody")},
        errors=ABSENT,
        example=Example(
            13,
            path={"topic": "orders"},
            answer=(
                '{"topic":"orders","type":"log","head_seq":3,"earliest_seq":1,"next_seq":4,'
                '"count":2,"bytes":34,"config":{"ttl_ms":604800000,"durable":true,'
                '"durability":"fsync"},"effective_priority":500,"last_write_ts":1790000000000,'
                '"last_read_ts":1790000000014,"epoch":1,"delete_version":4294967297}'
            ),
        ),
    ),
    Endpoint(
        "GET /v0/topics/{topic}/explain",
        "explainTopic",
        "Read in sentences what a topic lost, who is behind and what is stuck",
        scopes=("read",),
        replies={200: Success("The story of the topic.", "StoryShape")},
        errors=("topic_not_found",),
        example=Example(
            38,
            path={"topic": "mails"},
            answer=(
                '{"topic":"mails","opening":"mails is a queue with 2 live of 4 written records; '
                'its last seq is 4.","findings":[{"weight":1,"what":"1 job is ready, 1 at work, 0 '
                'held back.","since_ms":1790000000453,"word":"since","command":"topics queue stats '
                'mails"}]}'
            ),
        ),
    ),
    Endpoint(
        "DELETE /v0/topics/{topic}",
        "dropTopic",
        "Drop a topic and the routers that touch it",
        scopes=("delete",),
        query=(flag("if_empty", "Refuse while records are left.", default=False),),
        replies={200: Success("The topic is gone.", "Dropped")},
        errors=("topic_not_empty",),
        example=Example(
            39,
            path={"topic": "mails"},
            answer='{"topic":"mails","deleted":true,"routers_removed":[]}',
        ),
    ),
)

CURSORS = (
    Endpoint(
        "GET /v0/topics/{topic}/cursors",
        "listCursors",
        "List the named cursors of a topic",
        scopes=("read",),
        query=PAGING,
        replies={200: Success("Cursors by name.", "CursorList")},
        errors=("invalid_request", "topic_not_found"),
        example=Example(
            11,
            path={"topic": "orders"},
            answer=(
                '{"topic":"orders","cursors":[{"topic":"orders","cursor":"billing","seq":1,'
                '"updated_ts":1790000000008,"head_seq":3,"lag_records":1,"lag_seqs":2,'
                '"lag_seconds":0.012,"gap_pending":false}]}'
            ),
        ),
    ),
    Endpoint(
        "PUT /v0/topics/{topic}/cursors/{cursor}",
        "setCursor",
        "Set a named cursor, also backwards",
        scopes=("read",),
        body="CursorBody",
        replies=created_or_not("cursor", "CursorState"),
        errors=ABSENT,
        example=Example(
            9,
            path={"topic": "orders", "cursor": "billing"},
            body='{"seq":1}',
            status=201,
            answer=(
                '{"topic":"orders","cursor":"billing","seq":1,"updated_ts":1790000000008,'
                '"head_seq":3,"lag_records":1,"lag_seqs":2,"lag_seconds":0.01,'
                '"gap_pending":false}'
            ),
        ),
    ),
    Endpoint(
        "GET /v0/topics/{topic}/cursors/{cursor}",
        "getCursor",
        "Read a named cursor and how far it is behind",
        scopes=("read",),
        replies={200: Success("The cursor now.", "CursorState")},
        errors=("topic_not_found", "not_found"),
        example=Example(
            10,
            path={"topic": "orders", "cursor": "billing"},
            answer=(
                '{"topic":"orders","cursor":"billing","seq":1,"updated_ts":1790000000008,'
                '"head_seq":3,"lag_records":1,"lag_seqs":2,"lag_seconds":0.011,'
                '"gap_pending":false}'
            ),
        ),
    ),
    Endpoint(
        "DELETE /v0/topics/{topic}/cursors/{cursor}",
        "dropCursor",
        "Forget a named cursor",
        scopes=("delete",),
        replies={200: Success("The cursor is gone.", "CursorDropped")},
        errors=ABSENT,
        example=Example(
            12,
            path={"topic": "orders", "cursor": "billing"},
            answer='{"topic":"orders","cursor":"billing","deleted":true}',
        ),
    ),
)

ROUTERS = (
    Endpoint(
        "GET /v0/routers",
        "listRouters",
        "List routers by name",
        scopes=("read",),
        query=(
            PREFIX,
            text("source", "Only routers from this topic."),
            text("dest", "Only routers into this topic."),
            *PAGING,
            flag("details", "Tell how many records wait, too.", default=False),
        ),
        replies={200: Success("Routers the key may see.", "RouterList")},
        errors=("invalid_request",),
        example=Example(
            16,
            query="source=orders",
            answer=(
                '{"routers":[{"router":"orders->audit","source":"orders","dest":"audit",'
                '"guarantee":"at_least_once","forwarded_total":0}]}'
            ),
        ),
    ),
    Endpoint(
        "PUT /v0/routers/{router}",
        "putRouter",
        "Create or replace a router",
        scopes=("admin",),
        body="RouterBody",
        replies=created_or_not("router", "RouterShape"),
        errors=("topic_not_found", "topic_exists_incompatible", "router_cycle"),
        example=Example(
            14,
            path={"router": "orders->audit"},
            body='{"source":"orders","dest":"audit","filter":"user-*"}',
            status=201,
            answer=(
                '{"router":"orders->audit","created":true,"source":"orders","dest":"audit",'
                '"preserve_node":true,"preserve_tag":true,"filter":["tag","Glob","user-*"],'
                '"allow_cycle":false,"guarantee":"at_least_once"}'
            ),
        ),
    ),
    Endpoint(
        "GET /v0/routers/{router}",
        "getRouter",
        "Read a router",
        scopes=("read",),
        replies={200: Success("The router now.", "RouterShape")},
        errors=("router_not_found",),
        example=Example(
            15,
            path={"router": "orders->audit"},
            answer=(
                '{"router":"orders->audit","source":"orders","dest":"audit",'
                '"preserve_node":true,"preserve_tag":true,"filter":["tag","Glob","user-*"],'
                '"allow_cycle":false,"guarantee":"at_least_once","forwarded_total":0,"lag":0}'
            ),
        ),
    ),
    Endpoint(
        "DELETE /v0/routers/{router}",
        "dropRouter",
        "Drop a router; what it forwarded stays",
        scopes=("delete",),
        replies={200: Success("The router is gone.", "RouterDropped")},
        example=Example(
            17,
            path={"router": "orders->audit"},
            answer='{"router":"orders->audit","deleted":true}',
        ),
    ),
)
