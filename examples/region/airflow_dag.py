"""An Airflow DAG that runs every job of the region that is due, every ten minutes (Airflow 2.7 or later).

Copy it into the folder of the DAGs. A worker needs Java 17 and ``pip install 'vedette[region]'``; which job is due is
known to the tables, so there is one task, and what it could not do the next run does.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow import DAG
from airflow.operators.bash import BashOperator

with DAG(
    "vedette_region",
    schedule=timedelta(minutes=10),
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=2), "execution_timeout": timedelta(hours=6)},
) as dag:
    BashOperator(
        task_id="all_due_jobs",
        bash_command=(
            "vedette-spark all --landing {{ var.value.vedette_landing }} --tables {{ var.value.vedette_tables }} "
            "--lookups {{ var.value.vedette_lookups }} --html {{ var.value.vedette_report }} "
            "--conf spark.driver.memory=2g"
        ),
    )
