"""What people ask a controller: commands that show its studies and trials, and end a study."""
