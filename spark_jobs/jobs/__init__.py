"""The jobs, one module each: `HELP`, `arguments`, `check`, `run`.

Listed in `spark_jobs/__main__.py`.
Imports: common, export, findings, intake, report, tables.
"""
