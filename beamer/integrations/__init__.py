"""Integrations with tuners and trainers, each imported only where its library is."""
