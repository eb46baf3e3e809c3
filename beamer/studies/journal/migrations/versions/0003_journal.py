"""The journal of 0.1.0: events chained by checksums, the head of the chain, and snapshots in place of events."""

import sqlalchemy as sa
from alembic import op

from beamer.studies.journal.chain import Head

revision = "0003"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "events",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "snapshots",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("content_checksum", sa.BigInteger, nullable=False),
    )
    head = op.create_table(
        "head",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
        sa.Column("term", sa.BigInteger, nullable=False),
        sa.Column("seal", sa.BigInteger, nullable=False),
    )
    op.get_bind().execute(head.insert(), [{"id": 1, "number": 0, "checksum": 0, "term": 0, "seal": Head().seal}])
