"""Work that falls due by the clock: checkpoints, snapshots, trimming, the cold tier."""
