"""``python -m tests.spark_jobs.replayed --seed 1 --folder DIR``: what the jobs find of one region; see ``measure``."""

from __future__ import annotations

from functools import partial

from tests.spark_jobs.playbooks.measure import main
from tests.spark_jobs.replayed import SIZE, make
from tests.spark_jobs.replayed.recordings import alerts_of_all

if __name__ == "__main__":
    main(lambda folder: partial(make, alerts_of_all(folder / "agent")), SIZE)
