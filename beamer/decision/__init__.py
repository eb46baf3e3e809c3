"""What decisions of both levels have in common: policies by name, what they remember, and what happens when one fails."""
