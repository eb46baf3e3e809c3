"""Cells of committed tables that are run again by today's code and compared with what is committed."""
