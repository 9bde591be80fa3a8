"""Request bodies: a struct for each, and the decoder that fills it or refuses the body.

The structs name fields as the API does; their properties and the `…Request` types give them in
the words of the rest of the program. The OpenAPI document is made from the same structs.
"""

from topics.wire.requests.long_writes import (
    LONG_BODY_BYTES,
    decode_command_and_write,
    decode_command_in_steps,
    decode_stage_in_steps,
    decode_write_in_steps,
)
from topics.wire.requests.queues import (
    AckBody,
    ClaimBody,
    ExtendBody,
    NackBody,
    RedriveBody,
    decode_ack,
    decode_claim,
    decode_extend,
    decode_nack,
    decode_redrive,
)
from topics.wire.requests.reading import DeleteBody, DiffBody, decode_delete, decode_diff
from topics.wire.requests.routers import RouterBody, decode_router
from topics.wire.requests.stages import (
    CommitBody,
    StageBody,
    StagedRecordBody,
    StageRequest,
    decode_commit,
    decode_stage,
)
from topics.wire.requests.topics import (
    ConfigBody,
    CursorBody,
    HolesBody,
    PlanBody,
    decode_config,
    decode_cursor,
    decode_holes,
    decode_plan,
)
from topics.wire.requests.watching import (
    Command,
    PingCommand,
    PublishCommand,
    Start,
    StartBody,
    SubscribeCommand,
    UnsubscribeCommand,
    WatchBody,
    decode_command,
    decode_watch,
    request_id_of,
)
from topics.wire.requests.writing import (
    RecordBody,
    WriteBody,
    WriteRequest,
    decode_write,
)

__all__ = [
    "LONG_BODY_BYTES",
    "AckBody",
    "ClaimBody",
    "Command",
    "CommitBody",
    "ConfigBody",
    "CursorBody",
    "DeleteBody",
    "DiffBody",
    "ExtendBody",
    "HolesBody",
    "NackBody",
    "PingCommand",
    "PlanBody",
    "PublishCommand",
    "RecordBody",
    "RedriveBody",
    "RouterBody",
    "StageBody",
    "StageRequest",
    "StagedRecordBody",
    "Start",
    "StartBody",
    "SubscribeCommand",
    "UnsubscribeCommand",
    "WatchBody",
    "WriteBody",
    "WriteRequest",
    "decode_ack",
    "decode_claim",
    "decode_command",
    "decode_command_and_write",
    "decode_command_in_steps",
    "decode_commit",
    "decode_config",
    "decode_cursor",
    "decode_delete",
    "decode_diff",
    "decode_extend",
    "decode_holes",
    "decode_nack",
    "decode_plan",
    "decode_redrive",
    "decode_router",
    "decode_stage",
    "decode_stage_in_steps",
    "decode_watch",
    "decode_write",
    "decode_write_in_steps",
    "request_id_of",
]
