"""The widths of SQL's whole numbers; a module alone, as the processes of user functions load no more of the plan."""

BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32, "BIGINT": 64}
