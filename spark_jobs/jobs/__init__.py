"""The jobs, one module each: a function of a `Job` (`job.py`) and its options.

Listed in `spark_jobs/__main__.py`.
Imports: backtest, common, export, findings, intake, report, tables.
"""
