"""Settings from variables and flags: what counts, what is refused, what is warned about."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from topics.engine.settings import EngineSettings
from topics.errors import InvalidSetting
from topics.server.config import Flags, ServerConfig, TlsFiles, load, resolve_host
from topics.server.settings import BY_NAME, SETTINGS, Limit, ServerSetting, Switch, markdown_table

KEYS = {"TOPICS_API_KEYS": "k"}
DOCS = Path(__file__).parents[3] / "docs" / "configuration.md"

HOSTS = {
    "127.0.0.1": ["127.0.0.1"],
    "localhost": ["127.0.0.1", "::1"],
    "mixed": ["127.0.0.1", "10.0.0.7"],
    "::1": ["::1"],
    "::": ["::"],
    "0.0.0.0": ["0.0.0.0"],
    "mapped": ["::ffff:127.0.0.1"],
    "mapped-public": ["::ffff:10.0.0.7"],
    "odd": ["what", "fe80::1%eth0"],
}


def resolve(host: str) -> list[str]:
    return HOSTS.get(host, [])


def config(env: Mapping[str, str] | None = None, flags: Flags | None = None) -> ServerConfig:
    return load(env or {}, flags, resolve=resolve)


def refusal(env: Mapping[str, str], flags: Flags | None = None) -> InvalidSetting:
    with pytest.raises(InvalidSetting) as caught:
        config(env, flags)
    return caught.value


def value_of(loaded: ServerConfig, setting: ServerSetting) -> object:
    return getattr(loaded.engine if setting.is_engine else loaded, setting.name)


# The table


def test_every_setting_there_should_be_is_there() -> None:
    names = [
        "HOST",
        "PORT",
        "PORT_FILE",
        "API_KEYS",
        "ALLOW_INSECURE_NO_AUTH",
        "ALLOWED_HOSTS",
        "CORS_ORIGINS",
        "PROBE_AUTH",
        "MAX_BODY_BYTES",
        "MAX_REQUEST_BYTES",
        "DATA_DIR",
        "COLD_DIR",
        "WAL_SHARDS",
        "SEGMENT_MAX_EVENTS",
        "SEGMENT_MAX_BYTES",
        "SEGMENT_MAX_AGE_MS",
        "HOT_RETAIN_SEGMENTS",
        "HOT_RETAIN_BYTES",
        "DISK_SYNC_MS",
        "STOP_CHECKPOINT_MS",
        "WAL_REPAIR",
        "UNSAFE_NO_DIR_FSYNC",
        "MAX_TOPICS",
        "MAX_ROUTERS",
        "MAX_WATCH_SESSIONS",
        "MAX_SSE_CONNECTIONS",
        "MAX_SSE_CONNECTIONS_PER_KEY",
        "MAX_INFLIGHT_PER_KEY",
        "MAX_TOTAL_BYTES",
        "MAX_IDEMPOTENCY_KEYS",
        "STAGE_TTL_MS",
        "STAGE_LEASE_MS",
        "MAX_STAGE_BYTES",
        "MAX_STAGES",
        "MAX_STAGE_APPS",
        "STAGE_APP_TTL_MS",
        "TLS_CERT",
        "TLS_KEY",
        "ACCESS_LOG",
        "TEST_MIN_HEARTBEAT_MS",
        "MAX_BATCH_RECORDS",
        "MAX_RECORD_BYTES",
        "MAX_META_BYTES",
        "MAX_TAG_BYTES",
        "MAX_NODE_BYTES",
        "MAX_LIMIT",
        "MAX_WATCH_TOPICS",
        "MAX_CLAIM",
    ]
    assert [setting.variable for setting in SETTINGS] == [f"TOPICS_{name}" for name in names]


def test_a_variable_and_a_flag_are_two_spellings_of_one_name() -> None:
    setting = BY_NAME["max_sse_connections_per_key"]
    assert setting.variable == "TOPICS_MAX_SSE_CONNECTIONS_PER_KEY"
    assert setting.flag == "--max-sse-connections-per-key"


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name)
def test_help_says_meaning_variable_and_default(setting: ServerSetting) -> None:
    assert setting.help.startswith(setting.meaning)
    assert f"[{setting.variable}; default: {setting.default_text}]" in setting.help


def test_the_docs_show_the_table_as_it_is() -> None:
    assert markdown_table() in DOCS.read_text(), "paste the new markdown_table() into the docs"


# Defaults


def test_nothing_set_gives_the_defaults() -> None:
    loaded = config()
    assert loaded.engine == EngineSettings()
    assert (loaded.host, loaded.port, loaded.port_file) == ("127.0.0.1", 4000, None)
    assert (loaded.data_dir, loaded.engine.cold_dir) == ("./topics-data", None)
    assert (loaded.tls, loaded.probe_auth, loaded.keyring.enabled) == (None, False, False)
    assert loaded.max_body_bytes == 67_108_864
    assert loaded.max_watch_sessions == loaded.max_sse_connections == 10_000
    assert loaded.max_sse_connections_per_key == loaded.max_inflight_per_key == 1000
    assert (loaded.max_watch_topics, loaded.max_claim) == (256, 1000)
    assert loaded.min_heartbeat_ms == 1000


def test_the_shown_defaults_are_the_ones_that_count() -> None:
    loaded = config()
    for setting in SETTINGS:
        if setting.name not in ("api_keys", "allow_insecure_no_auth", "tls_cert", "tls_key"):
            name = setting.name.removeprefix("test_")
            where = loaded.engine if setting.is_engine else loaded
            expected = 1000 if name == "min_heartbeat_ms" else setting.default
            assert getattr(where, name) == expected


def test_the_engine_defaults_are_the_documented_ones() -> None:
    engine = config().engine
    assert (engine.segment_max_events, engine.segment_max_bytes) == (10_000, 67_108_864)
    assert (engine.segment_max_age_ms, engine.disk_sync_ms) == (3_600_000, 10)
    assert (engine.hot_retain_segments, engine.hot_retain_bytes) == (4, 0)
    assert (engine.max_topics, engine.max_routers, engine.max_total_bytes) == (100_000, 10_000, 0)
    assert engine.max_idempotency_keys == 262_144
    assert (engine.stage_ttl_ms, engine.max_stage_bytes) == (3_600_000, 1_073_741_824)
    assert engine.stage_app_ttl_ms == 2_592_000_000


# Variables and flags

NUMBERS = [s for s in SETTINGS if isinstance(s.default, int) and not s.is_switch]


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda s: s.name)
def test_a_number_is_taken_from_its_variable_and_a_flag_wins(setting: ServerSetting) -> None:
    by_variable = config({setting.variable: "7"})
    assert value_of(by_variable, setting) == 7
    by_flag = config({setting.variable: "7"}, {setting.name: "8"})
    assert value_of(by_flag, setting) == 8
    not_given = config({setting.variable: "7"}, {setting.name: None})
    assert value_of(not_given, setting) == 7


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda s: s.name)
@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1.0", "1e3", "64MB", "+1", "1_0", " 1", "٣", "0x1"]
)
def test_what_is_no_number_stops_the_start(setting: ServerSetting, text: str) -> None:
    error = refusal({setting.variable: text})
    assert error.setting == setting.variable
    assert repr(text) in str(error)
    assert "an integer" in str(error)
    assert refusal({}, {setting.name: text}).setting == f"{setting.flag} ({setting.variable})"


def test_a_bad_variable_does_not_count_when_the_flag_is_given() -> None:
    assert config({"TOPICS_PORT": "x"}, {"port": "5000"}).port == 5000


@pytest.mark.parametrize(
    ("name", "text", "allowed"),
    [
        ("port", "65536", "from 0 to 65535"),
        ("segment_max_bytes", "2147483649", "from 1 to 2147483648"),
        ("segment_max_bytes", "0", "from 1 to"),
        ("segment_max_events", "0", "from 1 to"),
        ("max_idempotency_keys", "0", "from 1 to"),
        ("wal_shards", "65", "from 0 to 64"),
        ("stage_ttl_ms", "0", "from 1"),
        ("test_min_heartbeat_ms", "0", "from 1 to 1000"),
        ("test_min_heartbeat_ms", "1001", "from 1 to 1000"),
        ("max_topics", "99999999999999999999", "from 0 to 2^62"),
        ("disk_sync_ms", "99999999999999999999999", "from 0"),
    ],
)
def test_a_number_out_of_range_stops_the_start(name: str, text: str, allowed: str) -> None:
    setting = BY_NAME[name]
    message = str(refusal({setting.variable: text}))
    assert setting.variable in message
    assert text in message
    assert allowed in message


@pytest.mark.parametrize(
    "name",
    [
        "port",
        "max_body_bytes",
        "wal_shards",
        "segment_max_age_ms",
        "hot_retain_bytes",
        "max_topics",
        "max_routers",
        "max_watch_sessions",
        "max_sse_connections",
        "max_sse_connections_per_key",
        "max_inflight_per_key",
        "max_total_bytes",
    ],
)
def test_zero_has_its_own_meaning_and_stays_zero(name: str) -> None:
    setting = BY_NAME[name]
    assert value_of(config({setting.variable: "0"}), setting) == 0


def test_the_heartbeat_floor_can_be_lowered_for_tests() -> None:
    assert config({"TOPICS_TEST_MIN_HEARTBEAT_MS": "1"}).min_heartbeat_ms == 1


# Limits of requests

LIMITS = {
    "max_batch_records": (10_000, 100_000),
    "max_record_bytes": (1 << 20, 8 << 20),
    "max_meta_bytes": (16_384, 1 << 20),
    "max_tag_bytes": (256, 4096),
    "max_node_bytes": (128, 4096),
    "max_limit": (1000, 10_000),
    "max_watch_topics": (256, 4096),
    "max_claim": (1000, 10_000),
}


def test_exactly_these_are_limits_of_requests() -> None:
    found = {s.name: (s.kind.default, s.kind.bound) for s in SETTINGS if isinstance(s.kind, Limit)}
    assert found == LIMITS


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_of_zero_is_the_default_and_one_above_its_bound_the_bound(name: str) -> None:
    setting = BY_NAME[name]
    default, bound = LIMITS[name]
    absent, zero = config(), config({setting.variable: "0"})
    assert value_of(absent, setting) == value_of(zero, setting) == default
    exact = config({setting.variable: str(bound)})
    assert value_of(exact, setting) == bound
    assert exact.warnings == absent.warnings
    above = config({setting.variable: str(bound + 1)})
    assert value_of(above, setting) == bound
    assert above.warnings[0] == (
        f"{setting.variable} is {bound + 1}, more than is possible; {bound} is used"
    )
    assert value_of(config({setting.variable: "9" * 30}), setting) == bound


# Switches, words, paths

SWITCHES = [s for s in SETTINGS if isinstance(s.kind, Switch)]


@pytest.mark.parametrize("name", ["probe_auth", "unsafe_no_dir_fsync"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [("1", True), ("true", True), ("TRUE", True), ("0", False), ("false", False)],
)
def test_a_switch_is_on_or_off(name: str, text: str, *, expected: bool) -> None:
    setting = BY_NAME[name]
    assert value_of(config({setting.variable: text}), setting) is expected


@pytest.mark.parametrize("setting", SWITCHES, ids=lambda s: s.name)
@pytest.mark.parametrize("text", ["", "yes", "on", "2", " 1", "tru"])
def test_a_switch_that_is_neither_on_nor_off_stops_the_start(
    setting: ServerSetting, text: str
) -> None:
    error = refusal({setting.variable: text})
    assert error.setting == setting.variable
    assert "1, true, 0 or false" in str(error)


def test_a_switch_flag_wins_both_ways() -> None:
    assert config({"TOPICS_PROBE_AUTH": "0"}, {"probe_auth": True}).probe_auth
    assert not config({"TOPICS_PROBE_AUTH": "1"}, {"probe_auth": False}).probe_auth


def test_the_log_is_repaired_only_on_the_one_word() -> None:
    assert config({"TOPICS_WAL_REPAIR": "salvage"}).engine.wal_repair == "salvage"
    for text in ("", "Salvage", "1", "yes"):
        assert "'salvage'" in str(refusal({"TOPICS_WAL_REPAIR": text}))


@pytest.mark.parametrize("name", ["port_file", "data_dir", "cold_dir"])
def test_a_path_is_taken_as_it_is(name: str) -> None:
    setting = BY_NAME[name]
    assert value_of(config({setting.variable: "/a b/ü"}), setting) == "/a b/ü"


@pytest.mark.parametrize(
    "name", ["host", "port_file", "data_dir", "cold_dir", "tls_cert", "tls_key"]
)
def test_an_empty_text_is_no_value(name: str) -> None:
    setting = BY_NAME[name]
    assert refusal({setting.variable: ""}).setting == setting.variable


def test_hosts_and_origins_are_kept_in_the_one_spelling_that_is_compared() -> None:
    loaded = config(
        {
            "TOPICS_ALLOWED_HOSTS": "Topics.Example.com., box ,10.0.0.7",
            "TOPICS_CORS_ORIGINS": "https://App.example.com:443, http://localhost:3000,app://x",
        }
    )
    assert loaded.allowed_hosts == "topics.example.com,box,10.0.0.7"
    assert loaded.cors_origins == "https://app.example.com,http://localhost:3000,app://x"


@pytest.mark.parametrize("text", ["", "a,,b", "a:80", "http://a", "a/b", "*.a", "a b", "u@a", "ü"])
def test_what_is_no_list_of_hosts_stops_the_start(text: str) -> None:
    error = refusal({"TOPICS_ALLOWED_HOSTS": text})
    assert error.setting == "TOPICS_ALLOWED_HOSTS"
    assert "without scheme, port or path" in str(error)


@pytest.mark.parametrize(
    "text",
    ["", "*", "null", "app.example.com", "https://a/", "https://a/b", "https://*.a", "https://a,"],
)
def test_what_is_no_list_of_origins_stops_the_start(text: str) -> None:
    error = refusal({"TOPICS_CORS_ORIGINS": text})
    assert error.setting == "TOPICS_CORS_ORIGINS"
    assert "https://app.example.com" in str(error)


def test_tls_needs_both_files_or_neither() -> None:
    both = config({"TOPICS_TLS_CERT": "c.pem", "TOPICS_TLS_KEY": "k.pem"})
    assert both.tls == TlsFiles("c.pem", "k.pem")
    error = refusal({"TOPICS_TLS_CERT": "c.pem"})
    assert error.setting == "TOPICS_TLS_KEY"
    assert "TOPICS_TLS_CERT is set" in str(error)
    error = refusal({}, {"tls_key": "k.pem"})
    assert error.setting == "TOPICS_TLS_CERT"
    assert "--tls-key (TOPICS_TLS_KEY) is set" in str(error)


# Where to bind


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", ("localhost", 9)),
        ("10.0.0.7", ("10.0.0.7", 9)),
        ("localhost:5000", ("localhost", 5000)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::1]:5000", ("::1", 5000)),
        ("[::]:5000", ("::", 5000)),
        ("::1", ("::1", 9)),
        ("::", ("::", 9)),
        ("[::1]", ("::1", 9)),
        ("fe80::1%lo", ("fe80::1%lo", 9)),
    ],
)
def test_a_host_may_name_the_port(host: str, expected: tuple[str, int]) -> None:
    loaded = config({**KEYS, "TOPICS_HOST": host, "TOPICS_PORT": "9"})
    assert (loaded.host, loaded.port) == expected


@pytest.mark.parametrize(
    "host",
    [
        ":4000",
        ":",
        "localhost:",
        "localhost:x",
        "localhost:65536",
        "localhost:-1",
        "a:b:5",
        "[::1",
        "[::1]5000",
        "[::1]:",
        "[::1]:x",
        "[localhost]:5000",
        "[]:5000",
        "::1]:5000",
        "[a:b]",
    ],
)
def test_a_host_that_cannot_be_read_stops_the_start(host: str) -> None:
    error = refusal({**KEYS, "TOPICS_HOST": host})
    assert error.setting == "TOPICS_HOST"
    assert repr(host) in str(error)


def test_a_port_beside_a_host_with_port_is_ignored_with_a_word() -> None:
    for text in ("6000", "not a port"):
        loaded = config({**KEYS, "TOPICS_HOST": "localhost:5000", "TOPICS_PORT": text})
        assert loaded.port == 5000
        assert loaded.warnings == ("TOPICS_PORT is ignored: TOPICS_HOST names a port already",)


# Keys


def test_keys_are_kept_as_a_keyring_and_shown_nowhere() -> None:
    loaded = config({"TOPICS_API_KEYS": "swordfish:rw:a."})
    assert loaded.keyring.authenticate(b"swordfish").allows("a.b")
    assert loaded.warnings == ()
    assert "swordfish" not in repr(loaded)


def test_malformed_keys_stop_the_start_without_showing_them() -> None:
    error = refusal({"TOPICS_API_KEYS": "swordfish:banana"})
    assert error.setting == "TOPICS_API_KEYS"
    assert "banana" in str(error)
    assert "swordfish" not in str(error)
    assert refusal({}, {"api_keys": "k:x"}).setting == "--api-keys (TOPICS_API_KEYS)"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]:5000", "mapped"])
def test_loopback_without_keys_starts_with_a_loud_warning(host: str) -> None:
    (warning,) = config({"TOPICS_HOST": host}).warnings
    assert "NO API KEYS" in warning
    assert "this machine" in warning
    assert "TOPICS_API_KEYS" in warning


PUBLIC = ["0.0.0.0", "0.0.0.0:80", "::", "[::]:80", "mixed", "mapped-public", "odd", "unknown"]


@pytest.mark.parametrize("host", PUBLIC)
def test_a_public_bind_without_keys_is_refused(host: str) -> None:
    error = refusal({"TOPICS_HOST": host, "TOPICS_ALLOW_INSECURE_NO_AUTH": "0"})
    assert error.setting == "TOPICS_HOST"
    assert "loopback" in str(error)
    assert "TOPICS_API_KEYS" in str(error)
    assert "TOPICS_ALLOW_INSECURE_NO_AUTH" in str(error)
    assert refusal({}, {"host": host}).setting == "--host (TOPICS_HOST)"


@pytest.mark.parametrize("host", PUBLIC)
def test_a_public_bind_without_keys_is_possible_when_said_so(host: str) -> None:
    env = {"TOPICS_HOST": host, "TOPICS_ALLOW_INSECURE_NO_AUTH": "true"}
    (warning,) = config(env).warnings
    assert "EVERYBODY" in warning


@pytest.mark.parametrize("keys", ["k", ":rw"])
def test_a_public_bind_with_keys_needs_no_word_and_no_lookup(keys: str) -> None:
    def never(host: str) -> list[str]:
        raise AssertionError(host)

    env = {"TOPICS_HOST": "0.0.0.0", "TOPICS_API_KEYS": keys}
    assert load(env, resolve=never).warnings == ()


def test_blank_keys_are_no_keys() -> None:
    assert refusal({"TOPICS_HOST": "0.0.0.0", "TOPICS_API_KEYS": " , "}).setting == "TOPICS_HOST"
    assert not config({"TOPICS_API_KEYS": ""}).keyring.enabled


def test_addresses_resolve_to_themselves_and_nonsense_to_nothing() -> None:
    assert resolve_host("127.0.0.1") == ["127.0.0.1"]
    assert resolve_host("0.0.0.0") == ["0.0.0.0"]
    assert resolve_host("a..b") == []
    assert resolve_host("x" * 300) == []


def test_other_variables_are_none_of_our_business() -> None:
    loaded = config({"PATH": "/bin", "TOPICS_CRASHPOINT": "x"})
    assert loaded.engine == EngineSettings()
