"""Runs the migrations on the connection that `store` hands over; it configures no logging, that is the caller's."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
