"""What must change together: cursor, counters, state and outbox in one LMDB transaction.

The only import of lmdb; a damaged store is detected in a child process and rebuilt from the raw log.
Imports: model, rawlog, system.
"""
