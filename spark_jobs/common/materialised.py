"""Frames that are asked more than once, reckoned once."""

from __future__ import annotations

from pyspark.sql import DataFrame


def materialised(frame: DataFrame) -> DataFrame:
    """``frame``, reckoned now and held by the executors, in memory or on their disks, until the JVM has collected it.

    In place of ``persist``, which leaves in every plan made of the frame the whole plan that the frame was made by:
    where frames are made of kept ones these double each time, and Spark writes them out after every stage. The price:
    an executor that is lost takes its part along, which ends the job; the next run does it again.
    """
    return frame.localCheckpoint()
