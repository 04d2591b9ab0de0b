"""One file a format of messages; `table.py` lists them."""
