"""What `import topics` offers, and the keywords of its calls as checkers see them."""

from __future__ import annotations

import inspect

import pytest

import topics
import topics.aio
from topics import values
from topics.client import _batching, _working
from topics.client.consumer import Consumer
from topics.client.keywords import BatchOptions, ClientSettings, ConsumerOptions, WorkOptions
from topics.client.sync import RemoteLog
from topics.embedded.opening import LogSettings, open_log
from topics.engine.settings import SETTING_NAMES


def test_every_public_name_is_there_and_no_other_is_shown() -> None:
    for module in (topics, topics.aio):
        assert {getattr(module, name).__name__.split(".")[-1] for name in module.__all__} == set(
            module.__all__
        )
        assert {name for name in dir(module) if not name.startswith("_")} == set(module.__all__)
        with pytest.raises(AttributeError, match="no attribute 'opne'"):
            _ = module.opne


def test_what_calls_give_back_is_public() -> None:
    given = {name for name, kind in vars(values).items() if inspect.isclass(kind)}
    given &= {name for name in given if vars(values)[name].__module__ == "topics.values"}
    # Only the server reads backwards, for its console.
    assert given - set(topics.__all__) == {"Value", "BackPage"}


def keywords(call: object) -> set[str]:
    parameters = inspect.signature(call).parameters.values()  # type: ignore[arg-type] # a callable
    return {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}


def test_the_typed_keywords_are_those_that_calls_take() -> None:
    assert set(LogSettings.__annotations__) == SETTING_NAMES | keywords(open_log)
    assert set(ClientSettings.__annotations__) == keywords(RemoteLog)
    assert set(ConsumerOptions.__annotations__) == keywords(Consumer) - {"name"}
    assert set(BatchOptions.__annotations__) == set(_batching.BatchSettings._fields)
    assert set(WorkOptions.__annotations__) == set(_working.WorkSettings._fields)
