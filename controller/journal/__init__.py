"""What the controller does with its journal: replay it, compact it, and lead or follow by it."""
