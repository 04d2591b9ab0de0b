"""Frames that are asked more than once, reckoned once."""

from __future__ import annotations

from pyspark.sql import DataFrame


def kept(frame: DataFrame) -> DataFrame:
    """``frame``, reckoned now and held by the executors until nothing refers to it.

    In place of ``persist``, which leaves in every plan made of the frame the whole plan that the frame was made by:
    frames made of kept ones double it each time, and Spark writes it out after every stage."""
    return frame.localCheckpoint()
