"""Calls of workers on the jobs of a queue."""

from topics.wire.endpoints.parts import (
    EVENT_STREAM,
    QUEUE,
    Endpoint,
    Example,
    Parameter,
    Success,
    text,
    u32,
    u64,
)

QUEUES = (
    Endpoint(
        "POST /v0/topics/{topic}/claim",
        "claimJobs",
        "Take jobs on lease",
        scopes=("read", "write"),
        body="ClaimBody",
        replies={200: Success("Jobs, perhaps none.", "ClaimedShape")},
        errors=QUEUE,
        example=Example(
            22,
            path={"topic": "mails"},
            body='{"node":"worker-1","max":2}',
            answer=(
                '{"topic":"mails","claimed":[{"$seq":1,"lease_id":"lease_10000000001",'
                '"deadline":1790000030454,"$ts":1790000000453,"deliveries":1,'
                '"data":{"to":"a@example.org"}},{"$seq":2,"lease_id":"lease_10000000002",'
                '"deadline":1790000030454,"$ts":1790000000453,"deliveries":1,'
                '"data":{"to":"b@example.org"}}],"count":2,"ready":1}'
            ),
        ),
    ),
    Endpoint(
        "POST /v0/topics/{topic}/ack",
        "ackJobs",
        "Finish jobs",
        scopes=("write",),
        body="AckBody",
        replies={200: Success("How many were finished.", "AckedShape")},
        errors=("batch_too_large", *QUEUE),
        example=Example(
            24,
            path={"topic": "mails"},
            body='{"node":"worker-1","seqs":[1]}',
            answer='{"topic":"mails","acked":1,"skipped":[],"ready":1,"in_flight":1}',
        ),
    ),
    Endpoint(
        "POST /v0/topics/{topic}/nack",
        "nackJobs",
        "Give jobs back",
        scopes=("write",),
        body="NackBody",
        replies={200: Success("How many were given back.", "NackedShape")},
        errors=("batch_too_large", *QUEUE),
        example=Example(
            25,
            path={"topic": "mails"},
            body=(
                '{"node":"worker-1","seqs":[2],"error":{"type":"SMTPServerDisconnected",'
                '"message":"connection lost"}}'
            ),
            answer='{"topic":"mails","nacked":1,"skipped":[],"ready":2,"in_flight":0}',
        ),
    ),
    Endpoint(
        "POST /v0/topics/{topic}/extend",
        "extendJobs",
        "Hold jobs for longer",
        scopes=("write",),
        body="ExtendBody",
        replies={200: Success("How many are held for longer.", "ExtendedShape")},
        errors=("batch_too_large", *QUEUE),
        example=Example(
            23,
            path={"topic": "mails"},
            body='{"node":"worker-1","seqs":[1,2],"lease_ms":60000}',
            answer=(
                '{"topic":"mails","extended":2,"skipped":[],"deadlines":{"1":1790000060456,'
                '"2":1790000060456}}'
            ),
        ),
    ),
    Endpoint(
        "GET /v0/topics/{topic}/jobs",
        "listJobs",
        "Look at jobs without taking any: which worker holds a job, since when, until when",
        scopes=("read",),
        query=(
            Parameter(
                "state",
                "Only jobs in this state.",
                {"type": "string", "enum": ["leased", "delayed", "ready"]},
            ),
            u32("limit", "Jobs at most; clamped to 1 to 1000.", 100),
        ),
        replies={200: Success("Jobs: leased, then delayed, then ready.", "PeekedJobsPage")},
        errors=("invalid_request", *QUEUE),
        example=Example(
            27,
            path={"topic": "mails"},
            query="limit=1",
            answer=(
                '{"topic":"mails","jobs":[{"seq":3,"state":"leased","deliveries":1,'
                '"node":"worker-1","claimed_ts":1790000000458,"deadline_ts":1790000030458,'
                '"data":{"to":"c@example.org"}}],"more":true}'
            ),
        ),
    ),
    Endpoint(
        "GET /v0/topics/{topic}/work",
        "streamJobs",
        "Be sent jobs as a stream, a bounded number at a time",
        scopes=("read", "write"),
        query=(
            text("node", "The worker's name.", required=True),
            u32("max", "Jobs held at a time.", 1),
            u64("lease_ms", "How long a job is held; as the queue says unless given."),
        ),
        replies={200: Success("Events job and error.", media=(EVENT_STREAM,))},
        errors=("invalid_request", "not_acceptable", *QUEUE),
        stream_token=True,
        example=Example(
            36,
            path={"topic": "mails"},
            query="node=worker-1",
            answer=(
                'event: job\ndata: {"topic":"mails","$seq":1,"lease_id":"lease_10000000001",'
                '"deadline":1790000030500,"$ts":1790000000500,"deliveries":1,'
                '"data":{"to":"a@example.org"}}\n\n'
            ),
        ),
    ),
    Endpoint(
        "POST /v0/topics/{topic}/redrive",
        "redriveJobs",
        "Put dead letters back into their queue, the oldest or those named",
        scopes=("write", "delete"),
        body="RedriveBody",
        replies={200: Success("How many went back.", "RedrivenShape")},
        errors=("batch_too_large", "record_too_large", "topic_full", *QUEUE),
        example=Example(
            26,
            path={"topic": "mails"},
            body='{"max":10}',
            answer='{"topic":"mails","from":"mails.dead","moved":1,"more":false}',
        ),
    ),
)
