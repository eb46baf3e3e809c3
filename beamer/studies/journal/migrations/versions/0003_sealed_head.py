"""A checksum of the head, which the writer's term is part of."""

import sqlalchemy as sa
from alembic import op

from beamer.studies.journal.chain import ChainLink, Head

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Seal the head as it is."""
    op.add_column("head", sa.Column("seal", sa.BigInteger, nullable=False, server_default="0"))
    connection = op.get_bind()
    for number, checksum, term in connection.execute(sa.text("SELECT number, checksum, term FROM head")).all():
        seal = Head(ChainLink(number, checksum), term).seal
        connection.execute(sa.text("UPDATE head SET seal = :seal"), {"seal": seal})
