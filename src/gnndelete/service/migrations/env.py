"""Alembic's entry: the connection is that of `gnndelete.service.storage.Storage.migrate`."""

from alembic import context

from gnndelete.service.schema import Base

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, render_as_batch=True
)
with context.begin_transaction():
    context.run_migrations()
