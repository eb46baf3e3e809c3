"""From flows and their classes to rates: what the links of a fabric do."""
