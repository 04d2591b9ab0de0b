"""What a function is given, as text: a package of which one module imports another."""

from pyflink.table import DataTypes
from pyflink.table.udf import udf

from .texts import text_of


@udf(result_type=DataTypes.STRING())
def given(*values):
    return " ".join(map(text_of, values))
