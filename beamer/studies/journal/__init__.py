"""The database of events; the only folder that imports SQLAlchemy and Alembic."""
