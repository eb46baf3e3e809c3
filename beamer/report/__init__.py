"""What people and programs read after a run: tables, JSON documents, pictures, files of rows, timelines for a viewer."""

from beamer.report.chrome import joint_events, replay_events, run_events, write_events
from beamer.report.joint import joint_document, joint_simulation_document, joint_table
from beamer.report.json_documents import replay_document, run_document, simulation_document
from beamer.report.plots import plot_cdf, plot_timeline
from beamer.report.row_files import Row, coflow_rows, job_rows, joint_stage_rows, stage_rows, trial_rows, write_rows
from beamer.report.tables import bound_rows, job_table, replay_table, stage_table

__all__ = [
    "Row",
    "bound_rows",
    "coflow_rows",
    "job_rows",
    "job_table",
    "joint_document",
    "joint_events",
    "joint_simulation_document",
    "joint_stage_rows",
    "joint_table",
    "plot_cdf",
    "plot_timeline",
    "replay_document",
    "replay_events",
    "replay_table",
    "run_document",
    "run_events",
    "simulation_document",
    "stage_rows",
    "stage_table",
    "trial_rows",
    "write_events",
    "write_rows",
]
