"""`beamer simulate`: runs of the flow-level simulator, compared."""
