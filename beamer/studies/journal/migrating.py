"""Makes the journal's schema, or brings an older one up to date: imported only where that is to be done."""

import sqlalchemy as sa
from alembic import command
from alembic.config import Config


def upgrade(connection: sa.Connection) -> None:
    """Run the migrations that a database lacks, in the connection's transaction. Raises SQLAlchemy's errors."""
    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def configuration() -> Config:
    """Return where Alembic finds the migrations."""
    config = Config()
    config.set_main_option("script_location", "beamer.studies.journal:migrations")
    return config
