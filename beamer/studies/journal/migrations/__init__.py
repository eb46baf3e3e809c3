"""The journal's schema, version by version; `beamer.studies.journal.store` brings a database to the newest when it opens it.

None leads back: a journal is not made an older one, of which a copy is restored.
"""
