"""A function for statements in SQL: the Shannon entropy of a text's characters, in bits.

```sql
CREATE FUNCTION entropy AS 'vedette-example-function:entropy' LANGUAGE PYTHON;
SELECT host, query FROM dns WHERE entropy(query) > 4.5
```

Its source goes into the bundle where rules are compiled; agents need not install it.
"""

from __future__ import annotations

import math
from collections import Counter

from pyflink.table import DataTypes
from pyflink.table.udf import udf


@udf(result_type=DataTypes.DOUBLE(), input_types=[DataTypes.STRING()])
def entropy(text: str) -> float:
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values()) if size else 0.0
