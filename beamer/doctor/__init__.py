"""What would keep Beamer from working on a machine: facts are gathered at the edge, and each check judges them purely."""
