"""A module of PyFlink's that holds its job beside its functions: these are as they are, the job does nothing."""

from __future__ import annotations

from contextlib import closing

import pytest

from vedette.plan.query import Module, Modules, Type
from vedette.stream.userfunctions import Spec
from vedette.udf.host import Host, Limits

FUNCTION = """
from pyflink.table import DataTypes
from pyflink.table.udf import udf

@udf(result_type=DataTypes.BIGINT())
def twice(n):
    return n and n * 2
"""
AT_TOP = """
from pyflink.common import Configuration, Row, Types
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.table import EnvironmentSettings, StreamTableEnvironment, TableEnvironment

settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(Configuration()).build()
env = TableEnvironment.create(settings)
env.get_config().set("parallelism.default", "1")
env.create_temporary_function("twice", twice)
env.execute_sql("CREATE TABLE source (n BIGINT) WITH ('connector' = 'datagen')")
env.execute_sql("INSERT INTO sink SELECT twice(n) FROM source").wait()
with env.execute_sql("SELECT twice(n) FROM source").collect() as rows:
    for row in rows:
        print(row[0])
"""
TABLE_API = """
import pyflink.table.expressions as e
from pyflink.table import DataTypes, Schema, StreamTableEnvironment, TableDescriptor
from pyflink.table.expressions import col, lit
from pyflink.table.window import Tumble

env = StreamTableEnvironment.create(None)
table = env.from_elements([(1, "a")], DataTypes.ROW([DataTypes.FIELD("n", DataTypes.BIGINT())]))
table = table.window(Tumble.over(lit(1).minutes).on(col("t")).alias("w")).group_by(col("w"), e.col("k"))
table = table.select(twice(col("n")).alias("m"), (col("n") + 1 > 2) & ~(col("k") == "x"), -col("n"))
env.create_temporary_table("sink", TableDescriptor.for_connector("print").schema(
    Schema.new_builder().column("n", DataTypes.BIGINT()).build()).build())
table.execute_insert("sink").wait()
"""
OF_STREAMS = """
from typing import Iterable
from pyflink.common import Time, WatermarkStrategy
from pyflink.common.typeinfo import Types
from pyflink.datastream import MapFunction, ProcessWindowFunction, RuntimeExecutionMode
from pyflink.datastream.connectors.kafka import KafkaSource
from pyflink.java_gateway import get_gateway

class Twice(MapFunction):
    def __init__(self, by):
        self.by = by

    def map(self, value):
        return value * self.by

class Counted(ProcessWindowFunction[tuple, tuple, str, object]):
    def process(self, key, context, elements: Iterable[tuple]):
        return [(key, len(list(elements)))]

source = KafkaSource.builder().set_topics("t").build()
stream = env_of = get_gateway().jvm
assert Twice(2).map(4) == 8
"""


@pytest.mark.parametrize("job", [AT_TOP, TABLE_API, OF_STREAMS], ids=["at the top", "Table API", "streams"])
def test_a_module_with_its_job_loads(job: str) -> None:
    """And its function gives its values."""
    of = Modules((Module("f", False, FUNCTION + job),))
    with closing(Host(Limits(seconds=1))) as host:
        assert host.describe(of, "f.twice")["kind"] == "scalar"
        host.know((of,))
        answers = host.call(Spec(of.digest, "f.twice", "eval", (Type("BIGINT"),), (Type("BIGINT"),)), [(4,), (None,)])
    assert (list(answers.values), dict(answers.failed)) == ([8, None], {})


def test_no_value_comes_of_a_job() -> None:
    """A function that gives what a job's name gives fails that row."""
    source = f"from pyflink.table.expressions import lit\n{FUNCTION.replace('n and n * 2', 'lit(n)')}"
    of = Modules((Module("f", False, source),))
    with closing(Host(Limits(seconds=1))) as host:
        host.describe(of, "f.twice")
        host.know((of,))
        answers = host.call(Spec(of.digest, "f.twice", "eval", (Type("BIGINT"),), (Type("BIGINT"),)), [(4,)])
    assert list(answers.failed) == [0]
