"""Which workers still run, and of which studies something was heard lately."""
