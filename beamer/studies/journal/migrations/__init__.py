"""The journal's schema, version by version; `beamer.studies.journal.store` brings a database to the newest when it opens it.

No migration leads back. To return to an older Beamer, restore a copy of its journal.
"""
