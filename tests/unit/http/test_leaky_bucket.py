from topics.http.leaky_bucket import LeakyBucket


def test_a_burst_is_tolerated_and_no_more() -> None:
    patience = LeakyBucket(burst=3, per_s=1)
    assert [patience.spend(1, now_s=100.0) for _ in range(4)] == [True, True, True, False]


def test_time_heals() -> None:
    patience = LeakyBucket(burst=3, per_s=2)
    assert patience.spend(3, now_s=100.0)
    assert not patience.spend(1, now_s=100.0)
    assert patience.spend(1, now_s=101.0)


def test_quiet_does_not_save_up() -> None:
    patience = LeakyBucket(burst=3, per_s=1)
    assert patience.spend(1, now_s=0.0)
    assert not patience.spend(4, now_s=1000.0)
