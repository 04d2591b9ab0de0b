"""Functions whose rows Flink and Vedette have in common; the vectors beside call them."""

import datetime
from decimal import Decimal

import shared
from pyflink.common import Row
from pyflink.table import DataTypes
from pyflink.table.udf import AggregateFunction, ScalarFunction, TableFunction, udaf, udf, udtf

# --- scalar


@udf(result_type=DataTypes.BIGINT())
def twice(n):
    return None if n is None else n * 2


@udf(result_type=DataTypes.BOOLEAN())
def high(n, than=3):
    return n is not None and n > than


typed = udf(lambda n: n, result_type=DataTypes.BIGINT(), input_types=[DataTypes.BIGINT()])
word = udf(lambda text: shared.spelled(text), result_type="STRING")
halved = udf(lambda d: None if d is None else d / 2, result_type=DataTypes.DOUBLE())
negated = udf(lambda b: None if b is None else not b, result_type=DataTypes.BOOLEAN())
later = udf(lambda t: t + datetime.timedelta(minutes=1), result_type=DataTypes.TIMESTAMP(3))
date_of = udf(lambda t: t.date(), result_type=DataTypes.DATE())
time_of = udf(lambda t: t.time(), result_type=DataTypes.TIME())
tenth = udf(lambda x: None if x is None else x / 10, result_type=DataTypes.DECIMAL(10, 2))
listed = udf(lambda *n: list(n), result_type=DataTypes.ARRAY(DataTypes.INT()))
longest = udf(lambda a: None if a is None else max(map(len, filter(None, a)), default=0), result_type="INT")
counted = udf(lambda t: {one: t.count(one) for one in t or ""}, result_type="MAP<STRING, BIGINT>")
keys = udf(lambda m: ",".join(sorted(m)), result_type=DataTypes.STRING())
pair = udf(
    lambda n, text: Row(n, text),
    result_type=DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT()), DataTypes.FIELD("b", DataTypes.STRING())]),
)
bytes_of = udf(lambda text: (text or "").encode(), result_type=DataTypes.BYTES())

# --- results that are not quite of the type declared

whole_as_double = udf(lambda n: n, result_type=DataTypes.DOUBLE())
float_as_whole = udf(lambda d: d, result_type=DataTypes.BIGINT())
bool_as_whole = udf(lambda b: b, result_type=DataTypes.INT())
whole_as_bool = udf(lambda n: n, result_type=DataTypes.BOOLEAN())
tuple_as_array = udf(lambda n: (n, None), result_type=DataTypes.ARRAY(DataTypes.INT()))
rounded = udf(lambda n: Decimal(n) + Decimal("0.125"), result_type=DataTypes.DECIMAL(10, 2))
too_wide = udf(lambda n: Decimal(10) ** 9, result_type=DataTypes.DECIMAL(5, 2))
too_wide_by_rounding = udf(lambda n: Decimal("999.996"), result_type=DataTypes.DECIMAL(5, 2))
micros = udf(lambda n: datetime.datetime(2026, 1, 1, 0, 0, 0, 123456), result_type=DataTypes.TIMESTAMP(3))
micros_kept = udf(lambda n: datetime.datetime(2026, 1, 1, 0, 0, 0, 123456), result_type=DataTypes.TIMESTAMP(6))
text_as_whole = udf(lambda n: "x", result_type=DataTypes.INT())
whole_as_text = udf(lambda n: 7, result_type=DataTypes.STRING())
list_as_map = udf(lambda n: [1], result_type="MAP<STRING, INT>")
too_big = udf(lambda n: 1 << 40, result_type=DataTypes.INT())
single = udf(lambda d: d, result_type=DataTypes.FLOAT())
text_as_double = udf(lambda n: "1.5", result_type=DataTypes.DOUBLE())
none_of = udf(lambda n: None, result_type=DataTypes.INT())
float_as_decimal = udf(lambda d: d, result_type=DataTypes.DECIMAL(10, 2))
whole_as_decimal = udf(lambda n: n, result_type=DataTypes.DECIMAL(10, 2))
text_as_bool = udf(lambda n: "x", result_type=DataTypes.BOOLEAN())
dict_as_row = udf(
    lambda n: {"a": n, "b": "x"},
    result_type=DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT()), DataTypes.FIELD("b", DataTypes.STRING())]),
)
bytes_as_text = udf(lambda text: text.encode(), result_type=DataTypes.STRING())
text_as_bytes = udf(lambda text: text, result_type=DataTypes.BYTES())
date_as_timestamp = udf(lambda t: t.date(), result_type=DataTypes.TIMESTAMP(3))
timestamp_as_date = udf(lambda t: t, result_type=DataTypes.DATE())
fails = udf(lambda n: 1 // 0, result_type=DataTypes.INT())


class Opened(ScalarFunction):
    """Has what ``open`` made, and a class's defaults."""

    offset = 100

    def open(self, function_context):
        self._table = {"a": 1, "b": 2}

    def eval(self, host, more=0):
        return self._table.get(host, 0) + self.offset + more


opened = udf(Opened(), result_type=DataTypes.INT())

# --- table


@udtf(result_types=[DataTypes.STRING(), DataTypes.INT()])
def words(text):
    for one in (text or "").split():
        yield one, len(one)


@udtf(result_types=[DataTypes.INT()])
def upto(n):
    return range(max(n or 0, 0))


class Pairs(TableFunction):
    def open(self, function_context):
        self._marks = "xy"

    def eval(self, n):
        if n is not None and n > 1:
            for mark in self._marks:
                yield Row(mark, n)


pairs = udtf(Pairs(), result_types=["STRING", "INT"])

# --- aggregates


class Weighted(AggregateFunction):
    """An average by weight; NULL without one."""

    def create_accumulator(self):
        return [0, 0]

    def accumulate(self, accumulator, value, weight):
        if value is not None and weight is not None:
            accumulator[0] += value * weight
            accumulator[1] += weight

    def retract(self, accumulator, value, weight):
        if value is not None and weight is not None:
            accumulator[0] -= value * weight
            accumulator[1] -= weight

    def merge(self, accumulator, accumulators):
        for total, weight in accumulators:
            accumulator[0] += total
            accumulator[1] += weight

    def get_value(self, accumulator):
        return accumulator[0] / accumulator[1] if accumulator[1] else None

    def get_result_type(self):
        return DataTypes.DOUBLE()

    def get_accumulator_type(self):
        return DataTypes.ARRAY(DataTypes.BIGINT())


weighted = udaf(Weighted())


class Seen(AggregateFunction):
    """Different values, sorted, as text."""

    def create_accumulator(self):
        return Row("")

    def accumulate(self, accumulator, value):
        accumulator[0] = ",".join(sorted({*filter(None, accumulator[0].split(",")), str(value)}))

    def merge(self, accumulator, accumulators):
        for one in accumulators:
            accumulator[0] = ",".join(sorted({*filter(None, (accumulator[0] + "," + one[0]).split(","))}))

    def get_value(self, accumulator):
        return accumulator[0]


seen = udaf(
    Seen(),
    result_type=DataTypes.STRING(),
    accumulator_type=DataTypes.ROW([DataTypes.FIELD("texts", DataTypes.STRING())]),
)


class Unmerged(AggregateFunction):
    """The sum, without ``merge``."""

    def create_accumulator(self):
        return [0]

    def accumulate(self, accumulator, n):
        accumulator[0] += n or 0

    def retract(self, accumulator, n):
        accumulator[0] -= n or 0

    def get_value(self, accumulator):
        return accumulator[0]


unmerged = udaf(Unmerged(), result_type=DataTypes.BIGINT(), accumulator_type=DataTypes.ARRAY(DataTypes.BIGINT()))
