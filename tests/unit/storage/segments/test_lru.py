from topics.storage.segments.lru import ByteLru


def test_what_was_used_longest_ago_goes_first() -> None:
    cache: ByteLru[str, int] = ByteLru(10)
    for name in "abc":
        cache.put(name, ord(name), 3)
    cache.get("a")
    cache.put("d", 100, 3)
    assert [cache.get(name) is not None for name in "abcd"] == [True, False, True, True]
    assert cache.used_bytes == 9


def test_a_value_larger_than_the_budget_is_kept_alone() -> None:
    cache: ByteLru[str, int] = ByteLru(10)
    cache.put("a", 1, 3)
    cache.put("big", 2, 50)
    assert (cache.get("a"), cache.get("big"), len(cache)) == (None, 2, 1)


def test_replacing_and_dropping_keep_the_account_straight() -> None:
    cache: ByteLru[str, int] = ByteLru(10)
    cache.put("a", 1, 3)
    cache.put("a", 2, 5)
    assert (cache.get("a"), cache.used_bytes) == (2, 5)
    cache.drop("a")
    cache.drop("a")
    assert (len(cache), cache.used_bytes) == (0, 0)
