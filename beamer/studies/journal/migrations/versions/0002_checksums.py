"""Checksums that chain events, the head of the chain, and snapshots in place of the events before them."""

import sqlalchemy as sa
from alembic import op

from beamer.studies.journal.chain import BEGINNING

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Number and chain the events that there are, as they are."""
    head = op.create_table(
        "head",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
        sa.Column("term", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "snapshots",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("content_checksum", sa.BigInteger, nullable=False),
    )
    chained = op.create_table(
        "chained_events",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
    )
    connection = op.get_bind()
    link = BEGINNING
    for partition in connection.execute(sa.text("SELECT kind, content FROM events ORDER BY number")).partitions(1000):
        rows = []
        for kind, content in partition:
            link = link.next(kind, content)
            rows.append({"number": link.number, "kind": kind, "content": content, "checksum": link.checksum})
        connection.execute(chained.insert(), rows)
    op.drop_table("events")
    op.rename_table("chained_events", "events")
    connection.execute(head.insert(), [{"id": 1, "number": link.number, "checksum": link.checksum, "term": 0}])
