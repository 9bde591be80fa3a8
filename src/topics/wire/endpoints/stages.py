"""Calls that stage records and commit them together."""

from topics.wire.endpoints.parts import (
    ARROW_STREAM,
    LISTS_BYTES,
    Endpoint,
    Example,
    Success,
    flag,
    u64,
)

STAGES = (
    Endpoint(
        "POST /v0/stages/{app}/{epoch}/{part}/{attempt}",
        "stageRecords",
        "Keep records aside until their epoch is committed",
        scopes=("write",),
        query=(
            flag(
                "by_run",
                "Whether the upper 40 bits of `attempt` name a run of the sink. The first stage of "
                "a new run discards what earlier runs of the app have staged; an earlier run is "
                "refused; the stages of a run that is silent for TOPICS_STAGE_LEASE_MS go.",
                default=False,
            ),
        ),
        body="StageBody",
        max_body_bytes=None,
        body_media=(ARROW_STREAM,),
        replies={200: Success("The records are kept.", "StagedShape")},
        errors=("batch_too_large", "record_too_large", "stale_epoch"),
        example=Example(
            19,
            path={"app": "etl", "epoch": 1, "part": 0, "attempt": 0},
            body='{"records":[{"topic":"orders","data":{"id":4,"eur":21}}]}',
            answer='{"app":"etl","epoch":1,"part":0,"attempt":0,"records":1,"bytes":17}',
        ),
    ),
    Endpoint(
        "GET /v0/stages/{app}",
        "getLastCommit",
        "Read the last epoch that an app committed, and what it wrote",
        scopes=("read",),
        replies={200: Success("The answer that the last commit got.", "Committed")},
        errors=("not_found",),
        example=Example(
            37,
            path={"app": "etl"},
            answer=(
                '{"app":"etl","epoch":1,"deduped":true,"topics":{"orders":{"first_seq":4,'
                '"last_seq":4,"count":1}}}'
            ),
        ),
    ),
    Endpoint(
        "GET /v0/stages",
        "listStages",
        "List what is staged and not committed",
        scopes=("read",),
        replies={
            200: Success(
                "By app and epoch, at most 1000 of them, the oldest first; `more` tells of others.",
                "StagesList",
            )
        },
        example=Example(
            51,
            answer='{"stages":[],"more":false}',
        ),
    ),
    Endpoint(
        "DELETE /v0/stages/{app}",
        "dropStages",
        "Discard what an app has staged and not committed",
        scopes=("admin",),
        query=(u64("epoch", "Only the stages of this epoch."),),
        replies={200: Success("How many stages were discarded.", "DroppedStages")},
        example=Example(
            52,
            path={"app": "etl"},
            answer='{"app":"etl","dropped":0,"disk_bytes":0}',
        ),
    ),
    Endpoint(
        "POST /v0/stages/{app}/{epoch}/commit",
        "commitStages",
        "Make staged records visible, all or none",
        scopes=("write",),
        body="CommitBody",
        max_body_bytes=LISTS_BYTES,
        replies={200: Success("The seqs each topic got.", "Committed")},
        errors=("record_too_large", "not_found", "stale_epoch", "topic_full"),
        example=Example(
            20,
            path={"app": "etl", "epoch": 1},
            body='{"parts":[[0,0]]}',
            answer=(
                '{"app":"etl","epoch":1,"deduped":false,"topics":{"orders":{"first_seq":4,'
                '"last_seq":4,"count":1}}}'
            ),
        ),
    ),
)
