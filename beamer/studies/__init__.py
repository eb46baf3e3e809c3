"""The ground both levels stand on: studies, their stages and jobs, what happens to them, and the journal of it."""
